"""What /metrics shows. No label has more values than there are profiles, reasons, verbs or codes."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, disable_created_metrics

# A second series for each counter, telling when it began: nobody asks for it.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The operator's metrics in a registry of their own, so that one process can hold two operators."""

    def __init__(self) -> None:
        """Register everything, with no sample yet."""
        self.registry = CollectorRegistry()
        self.build = Info("clusterconform_build", "Version of the operator.", registry=self.registry)
        self.nodes = Gauge(
            "clusterconform_nodes",
            "Nodes by profile (empty for none) and by the first reason why they do not conform.",
            ["profile", "reason"],
            registry=self.registry,
        )
        self.requests = Counter(
            "clusterconform_api_requests",
            "Requests to the API server by method and status code; 'none' for no answer.",
            ["method", "code"],
            registry=self.registry,
        )
        self.writes = Counter(
            "clusterconform_node_writes",
            "Writes to Nodes by what was written and how it ended.",
            ["write", "outcome"],
            registry=self.registry,
        )
        self.conflicts = Counter(
            "clusterconform_write_conflicts",
            "Writes that met another writer and were built anew.",
            registry=self.registry,
        )
        self.queue_depth = Gauge("clusterconform_queue_depth", "Nodes waiting.", registry=self.registry)
        self.stream_age = Gauge(
            "clusterconform_node_stream_age_seconds",
            "Seconds since the node stream last brought a byte.",
            registry=self.registry,
        )
        self.synced_age = Gauge(
            "clusterconform_sync_age_seconds",
            "Seconds since the last complete list of nodes and profiles; -1 before the first.",
            registry=self.registry,
        )
        self.events_dropped = Counter(
            "clusterconform_events_dropped",
            "Events not posted because of the rate limit.",
            registry=self.registry,
        )
        self.stream_lines = Counter(
            "clusterconform_node_stream_lines",
            "Lines of the node stream, passed on or dropped because nothing that is read had changed.",
            ["fate"],
            registry=self.registry,
        )
        self.leader = Gauge(
            "clusterconform_leader", "1 while this process leads, 0 while it stands by.", registry=self.registry
        )
        self.reaping = ReapingMetrics(self.registry)
        self.agents = AgentMetrics(self.registry)


class ReapingMetrics:
    """What reaping does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register everything in ``registry``, with no sample yet."""
        self.reaped = Counter(
            "clusterconform_reaped_nodes",
            "Nodes deleted, or that a dry run would have deleted.",
            ["mode"],
            registry=registry,
        )
        self.passes = Counter(
            "clusterconform_reaping_passes",
            "Reaping passes by how they ended: Done, the guard that refused, or the reason of an error.",
            ["outcome"],
            registry=registry,
        )
        self.last_pass = Gauge(
            "clusterconform_reaping_last_pass_timestamp_seconds",
            "When the last reaping pass began; 0 before the first.",
            registry=registry,
        )
        self.held = Gauge(
            "clusterconform_reaping_held_nodes",
            "Stale nodes that the last pass did not delete, by what held them.",
            ["reason"],
            registry=registry,
        )
        self.reaping_allowed = Gauge(
            "clusterconform_reaping_allowed",
            "1 for the reason that the condition ReapingAllowed now gives.",
            ["status", "reason"],
            registry=registry,
        )
        self.budget_left = Gauge(
            "clusterconform_reaping_budget_left_nodes", "Deletions left in the window.", registry=registry
        )
        self.oldest_stale = Gauge(
            "clusterconform_reaping_oldest_stale_age_seconds",
            "How long the oldest stale node has not been Ready; 0 without one.",
            registry=registry,
        )
        self.trusted = Gauge(
            "clusterconform_reaping_trusted_seconds",
            "Seconds of trust earned since the last doubt about clocks or the fleet.",
            registry=registry,
        )
        self.ledger_bytes = Gauge(
            "clusterconform_ledger_bytes", "Size of the ledger, which may hold 262144.", registry=registry
        )
        self.malformed_lines = Gauge(
            "clusterconform_ledger_malformed_lines",
            "Lines of the ledger that cannot be read; each counts as a deletion while it may lie in the window.",
            registry=registry,
        )
        self.terminating = Gauge(
            "clusterconform_nodes_terminating",
            "Nodes whose deletion is under way; one that stays has a finalizer that nobody removes.",
            registry=registry,
        )


class AgentMetrics:
    """Endpoints, probes and proven paths of agents."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register everything in ``registry``, with no sample yet."""
        self.endpoints = Gauge(
            "clusterconform_agent_endpoints",
            "Agents by where their kubelet endpoint stands.",
            ["reason"],
            registry=registry,
        )
        self.runtimes = Gauge(
            "clusterconform_agent_runtimes",
            "Agents by what their runtime probe says and why.",
            ["verdict", "cause"],
            registry=registry,
        )
        self.streaming = Gauge(
            "clusterconform_agent_streaming",
            "Agents by what came of the last log that was read through the API server.",
            ["cause"],
            registry=registry,
        )
        self.streaming_trials = Counter(
            "clusterconform_streaming_trials",
            "Logs that were asked for to prove the path to a kubelet, by what came of it.",
            ["cause"],
            registry=registry,
        )

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

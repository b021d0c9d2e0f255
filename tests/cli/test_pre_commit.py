"""The hook for other repositories, run there by the real pre-commit: it installs this repository and calls it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from docs_blocks import ROOT, block

WRONG = ROOT / "docs" / "examples" / "exec-on-podman.yaml"
CLAIM = "kubelet-exec"


class Repository:
    """A git repository of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("GIT_")},
            **{f"GIT_{who}_{what}": "test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            "GIT_CONFIG_GLOBAL": os.devnull,
            "PRE_COMMIT_HOME": str(folder.parent / "pre-commit"),
            "PRE_COMMIT_COLOR": "never",
            "PIP_NO_COMPILE": "1",
        }
        self.git("init", "--quiet")

    def git(self, *arguments: str) -> str:
        """What git prints."""
        return self.end("git", *arguments, code=0).strip()

    def commit(self) -> str:
        """Commit everything; the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--no-verify", "--message", "x")
        return self.git("rev-parse", "HEAD")

    def end(self, *command: str, code: int) -> str:
        """What ``command`` prints in the repository; it must end with ``code``."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout


def this_repository(folder: Path) -> Repository:
    """What git knows of this repository, as it stands here and now."""
    copy = Repository(folder)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return copy


@pytest.mark.timeout(600)
def test_pre_commit_installs_the_hook_and_refuses_what_breaks_the_contract(tmp_path: Path) -> None:
    ours = this_repository(tmp_path / "clusterconform")
    config = yaml.safe_load(block("docs/ci.md", "# .pre-commit-config.yaml"))
    config["repos"][0] |= {"repo": str(ours.folder), "rev": ours.commit()}
    theirs = Repository(tmp_path / "project")
    (theirs.folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    (theirs.folder / "deploy").mkdir()
    manifest = theirs.folder / "deploy" / "profile.yaml"
    wrong = WRONG.read_text()
    manifest.write_text(wrong.replace(f", {CLAIM}", ""))
    (theirs.folder / "elsewhere.yaml").write_text(wrong)  # which the page's pattern leaves out
    theirs.commit()
    run = (sys.executable, "-m", "pre_commit", "run", "--all-files")
    assert "Passed" in theirs.end(*run, code=0)
    manifest.write_text(wrong)
    said = theirs.end(*run, code=1)
    assert f"{manifest.relative_to(theirs.folder)}:" in said
    assert f"class virtual must not claim: {CLAIM} (R4)" in said
    assert "elsewhere.yaml" not in said

"""HDFS: Hadoop's MiniDFSCluster, one name node and one data node in a JVM; its jars come from Maven."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.remote.servers.process import program, serve
from tests.frameworks.remote.servers.store import Store

__all__ = ["hdfs_jars", "mini_dfs"]

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>shardkeep</groupId><artifactId>test-hdfs</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-minicluster</artifactId>
<version>3.4.1</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""


def hdfs_jars() -> Path:
    """Return the folder of the jars (90 MB), fetched once per user; skip the test where that fails."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shardkeep-tests"
    jars = cache / "hadoop-3.4.1"
    if not jars.exists():
        maven = program("mvn", "maven")
        work = cache / f"hadoop-{os.getpid()}"
        work.mkdir(parents=True, exist_ok=True)
        try:
            (work / "pom.xml").write_text(_POM)
            command = [
                maven,
                "-q",
                "-B",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={work / 'jars'}",
            ]
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=240, check=False)
            if done.returncode:
                pytest.skip(f"Maven cannot fetch Hadoop: {(done.stdout + done.stderr)[-300:]}")
            with contextlib.suppress(OSError):  # another session was faster
                os.rename(work / "jars", jars)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return jars


@contextlib.contextmanager
def mini_dfs(folder: Path) -> Iterator[Store]:
    """Serve HDFS on the loopback interface."""
    java = program("java", "default-jre-headless")
    details = folder / "details.json"
    command = [
        java, "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", f"-Dtest.build.data={folder}",
        "-cp", f"{hdfs_jars()}/*", "org.apache.hadoop.test.MiniDFSClusterManager",
        "-format", "-datanodes", "1", "-nnport", "0", "-httpport", "0", "-writeDetails", str(details),
        "-D", "dfs.permissions.enabled=false", "-D", "dfs.namenode.fs-limits.min-block-size=0",
        "-D", "dfs.replication=1",
    ]  # fmt: skip

    def is_ready() -> bool:
        with contextlib.suppress(OSError, ValueError):
            return "namenode_port" in json.loads(details.read_text())
        return False

    with serve(command, ready=is_ready, log=folder / "log", cwd=folder):
        port = json.loads(details.read_text())["namenode_port"]
        yield Store(f"hdfs://127.0.0.1:{port}/files", "hdfs", {}, {}, port)

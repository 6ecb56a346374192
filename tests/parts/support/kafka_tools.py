"""Stock Kafka's tools that only tests run: the dump of a log, the metadata shell, delegation tokens."""

from __future__ import annotations

from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_attempt

from migrator.parts.kafka import TOOL_SECONDS, StockKafka
from migrator.parts.processes import StillRunningError

SHELL_ATTEMPTS = 4


def dump_log(kafka: StockKafka, *files: Path, directory: Path) -> str:
    """``kafka-dump-log --cluster-metadata-decoder`` of segments or checkpoints."""
    names = ",".join(map(str, files))
    arguments = ("--cluster-metadata-decoder", "--files", names)
    return kafka.tool("kafka.tools.DumpLogSegments", *arguments, directory=directory)


def metadata_shell(kafka: StockKafka, file: Path, *command: str, directory: Path, shows: str = "") -> str:
    """``kafka-metadata-shell --snapshot FILE COMMAND``; the node that owns the file must not run.

    Run again when it hangs. It waits for `MetadataLoader.lastAppliedOffset`, which moves only when a batch is loaded
    after `SnapshotFileReader` has shut its queue down; of a short file the last batch may come before, and then stock's
    shell waits for ever. Or the last batch comes after it, and the shell answers from half of the file: it is run again
    until it ``shows`` that text.
    """
    main_class = "org.apache.kafka.shell.MetadataShell"
    hung = Retrying(
        retry=retry_if_exception_type(StillRunningError) | retry_if_result(lambda text: shows not in text),
        stop=stop_after_attempt(SHELL_ATTEMPTS),
        reraise=True,
    )
    return hung(
        kafka.tool,
        *(main_class, "--snapshot", str(file), *command),
        directory=directory,
        timeout_seconds=TOOL_SECONDS / SHELL_ATTEMPTS,
    )


def delegation_tokens(kafka: StockKafka, *arguments: str, directory: Path) -> str:
    """``kafka-delegation-tokens``."""
    return kafka.tool("org.apache.kafka.tools.DelegationTokenCommand", *arguments, directory=directory)

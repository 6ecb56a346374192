"""Makes `stock-*/metadata-versions.txt` anew: what two releases of stock Kafka say about each metadata.version.

    python -m tests.golden.make_metadata_versions

One line a level: level, name, whether records changed, and the highest versions of RegisterBrokerRecord,
PartitionRecord and PartitionChangeRecord. It needs a JDK (Java's source launcher), not only a JRE.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from migrator.parts.kafka import KafkaRelease

RELEASES = ("3.9.1", "4.1.1")
SOURCE = """\
import org.apache.kafka.server.common.MetadataVersion;

public class Print {
    public static void main(String[] arguments) {
        for (MetadataVersion v : MetadataVersion.values()) {
            if (v.featureLevel() > 0) {
                System.out.println(v.featureLevel() + " " + v.version() + " " + v.didMetadataChange() + " "
                    + v.registerBrokerRecordVersion() + " " + v.partitionRecordVersion() + " "
                    + v.partitionChangeRecordVersion());
            }
        }
    }
}
"""


def main() -> None:
    for release in RELEASES:
        kafka = KafkaRelease(release).fetch()
        target = Path(__file__).parent / f"stock-{release}" / "metadata-versions.txt"
        target.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "Print.java"
            source.write_text(SOURCE)
            target.write_text(kafka.tool(str(source), directory=Path(folder)))
        sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()

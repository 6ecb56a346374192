"""The differences between two images, at once."""

from __future__ import annotations

from migrator.image.changes import compare_images
from migrator.image.model import Changes, MetadataImage


def changes_between(before: MetadataImage, after: MetadataImage) -> Changes:
    """The last that `compare_images` yields."""
    *_, changes = compare_images(before, after)
    assert changes is not None
    return changes

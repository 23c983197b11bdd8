"""Writes golden.json: objects as Flower 1.41 makes them. Run with `pip install flwr==1.41.0 numpy`."""
import base64
import json
import pathlib

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Metadata, MetricRecord, RecordDict
from flwr.app.message.message import make_message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

SIX_MEGABYTES = 1_600_000


def arrays() -> dict[str, np.ndarray]:
    """Scalars, empty ones, several sides, and one of two pieces."""
    return {
        "body.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
        "body.bias": np.array([-1.5], dtype=np.float32),
        "empty": np.zeros((0, 3), dtype=np.float32),
        "large": (np.arange(SIX_MEGABYTES) % 7).astype(np.float32),
        "scalar": np.array(2.5, dtype=np.float32),
        "twin": np.array([-1.5], dtype=np.float32),
    }


def content() -> RecordDict:
    """One record of each kind. Arrays are ordered by name, as ours are."""
    values = arrays()
    record = ArrayRecord({name: Array(values[name]) for name in sorted(values)})
    metrics = MetricRecord({"loss": 0.25, "samples": 17, "curve": [0.5, -1.0], "counts": [1, -2]})
    config = ConfigRecord({"round": 3, "rho": 0.01, "task": "train", "on": True, "raw": b"\x00\x01"})
    return RecordDict({"arrays": record, "metrics": metrics, "config": config})


def main() -> None:
    """Keeps every object's id, and the bytes of all but the large pieces."""
    head = Metadata(7, "", 1, 12, "", "3", 1_700_000_000.5, 60.0, "train")
    message = make_message(head, content())
    objects = get_all_nested_objects(message)
    small = {id: base64.b64encode(value.deflate()).decode() for id, value in objects.items() if len(value.deflate()) < 4096}
    golden = {"message": message.object_id, "content": message.content.object_id, "ids": sorted(objects), "objects": small}
    path = pathlib.Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()

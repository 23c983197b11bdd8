#!/usr/bin/env python3
"""Write `digits.bin` from scikit-learn's copy of the UCI hand-written digits.

    pip install scikit-learn
    python3 make_digits.py

One record of 65 bytes an image, in scikit-learn's order: the class (0..9), then 8 x 8 values (0..16), row by row.
"""
import hashlib
import pathlib

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
records = np.column_stack([digits.target, digits.data]).astype(np.uint8)
assert records.shape == (1797, 65) and records[:, 0].max() == 9 and records[:, 1:].max() == 16

asset = pathlib.Path(__file__).with_name("digits.bin")
asset.write_bytes(records.tobytes())
print(asset.name, records.nbytes, "bytes, sha256", hashlib.sha256(records.tobytes()).hexdigest())

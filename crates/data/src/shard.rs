//! One client's samples, and the batches cut from them.

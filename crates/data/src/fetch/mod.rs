//! Verified, resumable downloads from the publishers.

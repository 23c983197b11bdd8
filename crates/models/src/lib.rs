//! fedeq-models

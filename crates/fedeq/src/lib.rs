//! fedeq

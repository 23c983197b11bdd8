//! fedeq-equilibrium

//! What several tests need.
use fedeq_models::Task;

/// A small task that a network fits.
pub(crate) fn task_for(name: &str) -> Task {
    match name {
        "linear" | "mlp" | "deq-mlp" => Task::vector(6, 3),
        name if name.contains("transformer") => Task::next_symbol(5, 9),
        _ => Task::image(8, 8, 1, 10),
    }
}

//! Keeping the cell of DEQ-MLP contractive.
use std::sync::Arc;

use fedeq_core::{Array, Params, Projection};
use fedeq_equilibrium::contract::{project_row_onto_l1_ball_in, project_row_onto_l1_sphere_in};
use fedeq_kernels::dense::transpose;
use fedeq_models::Graph;

use crate::network::Network;

/// Memory that projections work in.
#[derive(Debug, Default)]
pub(crate) struct ProjectionMemory {
    rows: Vec<f32>,
    sizes: Vec<f32>,
}

/// Puts the matrix `B` of the network's cell `phi(z B + u)` back to where it is a contraction; nothing happens where there is none.
pub(crate) fn project(
    projection: Projection,
    network: &Network,
    parameters: &mut [Arc<Vec<f32>>],
    memory: &mut ProjectionMemory,
) {
    if let Some((id, width)) = matrix(network.graph()) {
        let values: &mut Vec<f32> = Arc::make_mut(&mut parameters[id.0]);
        put_back(projection, width, values, memory);
    }
}

/// The same for named parameters.
pub fn project_params(projection: Projection, graph: &Graph, params: &Params) -> Params {
    let mut projected = params.clone();
    if let Some(parameter) = graph.projected_matrix()
        && let Some(array) = params.get(&parameter.path)
    {
        let mut values = array.values.to_vec();
        put_back(projection, parameter.shape[1], &mut values, &mut ProjectionMemory::default());
        projected.overwrite(&[(parameter.path.clone(), Array::new(array.shape.clone(), values))].into_iter().collect());
    }
    projected
}

fn matrix(graph: &Graph) -> Option<(fedeq_models::graph::ParameterId, usize)> {
    let parameter = graph.projected_matrix()?;
    let index = graph.parameters.iter().position(|each| each == parameter)?;
    Some((fedeq_models::graph::ParameterId(index), parameter.shape[1]))
}

/// The stored matrix is `[input, output]`, whose columns are the rows of the `B` in `B z`.
fn put_back(projection: Projection, width: usize, stored: &mut [f32], memory: &mut ProjectionMemory) {
    let ProjectionMemory { rows, sizes } = memory;
    match projection {
        Projection::Ball(radius) => {
            rows.resize(stored.len(), 0.0);
            transpose(stored, width, rows);
            rows.chunks_exact_mut(stored.len() / width).for_each(|row| project_row_onto_l1_ball_in(row, radius as f32, sizes));
            transpose(rows, stored.len() / width, stored);
        }
        Projection::Sphere(radius) => {
            stored.chunks_exact_mut(width).for_each(|row| project_row_onto_l1_sphere_in(row, radius as f32, sizes));
        }
    }
}

//! Keeping the cell of DEQ-MLP contractive.
use fedeq_core::{Projection, Result};
use fedeq_models::Graph;
use fedeq_models::graph::ParameterId;

use crate::device::{Device, Launch, Pointer, launch};
use crate::layout::Layout;
use crate::op::Cohort;

/// The matrix `B` of a network's cell `phi(z B + u)`, stored `[inputs][outputs]`, and where it is put back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Projected {
    projection: Projection,
    start: usize,
    stride: usize,
    rows: usize,
    columns: usize,
}

impl Projected {
    /// Nothing where the network has no such matrix.
    pub(crate) fn new(projection: Projection, graph: &Graph, layout: &Layout) -> Option<Self> {
        let parameter = graph.projected_matrix()?;
        let index = graph.parameters.iter().position(|each| each == parameter)?;
        let start = layout.place(ParameterId(index)).start;
        let [rows, columns] = [parameter.shape[0], parameter.shape[1]];
        Some(Self { projection, start, stride: layout.stride(), rows, columns })
    }

    /// Puts the matrices of all lanes back to where the cell is a contraction. A lane without samples stays as it is.
    pub(crate) fn run(&self, device: &Device, parameters: Pointer<f32>, cohort: Cohort, lanes: usize) -> Result<()> {
        // The columns of what is stored are the rows of the `B` in `B z`.
        let (launch, radius, ball) = match self.projection {
            Projection::Ball(radius) => {
                (Launch::new("project_columns", [self.columns.div_ceil(32), lanes, 1], 256), radius, 1_i32)
            }
            Projection::Sphere(radius) => (Launch::new("project_rows", [self.rows.div_ceil(8), lanes, 1], 256), radius, 0),
        };
        let b = parameters.add(self.start);
        launch!(device, launch; b, cohort, self.stride as i64, self.rows as i32, self.columns as i32, radius as f32, ball)
    }
}

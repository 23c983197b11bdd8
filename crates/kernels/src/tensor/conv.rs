//! Convolution.
use std::cell::RefCell;

use burn::tensor::Tensor;
use burn::tensor::module;
use burn::tensor::ops::ConvOptions;

use super::operation::{Operation, Past, apply};
use crate::InstructionSet;
use crate::conv::{self, Geometry, Scratch};
use crate::padding::same_padding;

thread_local! {
    /// One for each thread, so that training steps allocate no working memory.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// A convolution with [SAME padding](same_padding) and no bias.
///
/// `[B, H, W, in] -> [B, ceil(H / stride), ceil(W / stride), out]`, with kernels of `[out, in, window, window]`.
pub fn conv2d(x: Tensor<4>, weight: Tensor<4>, stride: usize) -> Tensor<4> {
    let ([batch, height, width, from], [to, _, window, _]) = (x.dims(), weight.dims());
    let operation = Convolution(Geometry { batch, height, width, from, to, window, stride });
    let inputs = [x.clone().into_dispatch(), weight.clone().into_dispatch()];
    apply(operation, inputs).unwrap_or_else(|| composed(x, weight, stride))
}

/// The same by burn's own operations.
fn composed(x: Tensor<4>, weight: Tensor<4>, stride: usize) -> Tensor<4> {
    let [_, height, width, _] = x.dims();
    let [_, _, window, _] = weight.dims();
    let padding = [height, width].map(|size| same_padding(size, window, stride));
    let options = ConvOptions::new_with_padding([stride; 2], padding, [1, 1], 1);
    module::conv2d(x.permute([0, 3, 1, 2]), weight, None, options).permute([0, 2, 3, 1])
}

#[derive(Clone, Debug)]
struct Convolution(Geometry);

impl Operation<2> for Convolution {
    type Saved = ();

    fn shape(&self) -> Vec<usize> {
        let [height, width] = self.0.output();
        vec![self.0.batch, height, width, self.0.to]
    }

    fn run_saving(&self, [x, weight]: [&[f32]; 2]) -> (Vec<f32>, ()) {
        let set = InstructionSet::best();
        let mut y = vec![0.0; self.0.output_len()];
        SCRATCH.with_borrow_mut(|scratch| conv::forward_once(set, &self.0, x, weight, &mut y, scratch));
        (y, ())
    }

    fn gradients(&self, past: Past<'_, (), 2>, wanted: [bool; 2]) -> [Option<Vec<f32>>; 2] {
        let Past { inputs: [x, weight], gradient: dy, .. } = past;
        let set = InstructionSet::best();
        SCRATCH.with_borrow_mut(|scratch| {
            let dx = wanted[0].then(|| {
                let mut dx = vec![0.0; self.0.input_len()];
                conv::input_gradient_once(set, &self.0, dy, weight, &mut dx, scratch);
                dx
            });
            let dw = wanted[1].then(|| {
                let mut dw = vec![0.0; self.0.weight_len()];
                conv::weight_gradient(set, &self.0, x, dy, &mut dw, scratch);
                dw
            });
            [dx, dw]
        })
    }
}

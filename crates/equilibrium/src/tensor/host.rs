//! Between the device, where states live, and the host, where decisions about single samples are made.
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// The values of a tensor as f64, in row-major order.
pub(super) fn to_host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.try_into_vec_as().expect("a float tensor can be read back as f64")
}

/// One value a row as a column `[rows, 1]`, on the device and of the type of `like`.
pub(super) fn column(values: &[f64], like: &Tensor<2>) -> Tensor<2> {
    let rows = values.len();
    Tensor::from_data(TensorData::new(values.to_vec(), [rows, 1]), (&like.device(), like.dtype()))
}

/// Row numbers as the index of a selection.
pub(super) fn row_indices(rows: &[usize], device: &Device) -> Tensor<1, Int> {
    let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let count = rows.len();
    Tensor::from_data(TensorData::new(rows, [count]), device)
}

/// One flag a row as a mask over all of `like`.
pub(super) fn row_mask(flags: &[bool], like: &Tensor<2>) -> Tensor<2, Bool> {
    let column = TensorData::new(flags.to_vec(), [flags.len(), 1]);
    Tensor::<2, Bool>::from_data(column, &like.device()).expand(like.dims())
}

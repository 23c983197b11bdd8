//! Tensors whose numbers lie in this process's memory, where a kernel can read them.
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, BackendTensor, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor, DispatchTensorKind, Flex,
    GradientCheckpointingStrategy, TensorMetadata,
};
use burn::tensor::{DType, TensorData};

/// Whether a kernel can work on it: 32-bit floats, some of them, on the CPU.
pub(crate) fn is_here(tensor: &DispatchTensor) -> bool {
    let kind = match &tensor.kind {
        DispatchTensorKind::Autodiff(kind) => kind,
        kind => kind,
    };
    let strategy = DispatchAutodiffContext::Enabled(GradientCheckpointingStrategy::Disabled);
    let known_graph = tensor.autodiff == DispatchAutodiffContext::Disabled || tensor.autodiff == strategy;
    #[allow(irrefutable_let_patterns)] // The CPU is the only backend in a default build.
    let here = matches!(kind, DispatchTensorKind::Flex(_));
    here && known_graph && kind.dtype() == DType::F32 && kind.shape().num_elements() > 0
}

/// Whether it belongs to a graph.
pub(crate) fn is_differentiated(tensor: &DispatchTensor) -> bool {
    tensor.autodiff != DispatchAutodiffContext::Disabled
}

/// The tensor as part of a graph; a constant of it if it was outside.
pub(crate) fn differentiated(tensor: DispatchTensor) -> FloatTensor<Autodiff<Flex>> {
    if !is_differentiated(&tensor) {
        return FloatTensor::<Autodiff<Flex>>::new(plain(tensor));
    }
    let found = <DispatchTensor as DispatchKindConversion<Autodiff<Flex>>>::try_into_backend(tensor);
    found.expect("`is_here` was asked before").float()
}

/// The tensor itself, its numbers in order.
pub(crate) fn plain(tensor: DispatchTensor) -> FlexTensor {
    let found = <DispatchTensor as DispatchKindConversion<Flex>>::try_into_backend(tensor);
    found.expect("`is_here` was asked before").float().to_contiguous()
}

/// The numbers of a contiguous tensor.
pub(crate) fn numbers(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("contiguous 32-bit floats")
}

/// The extent of every axis.
pub(crate) fn shape(tensor: &FlexTensor) -> Vec<usize> {
    tensor.shape().to_vec()
}

/// A tensor made of numbers, without copying them.
pub(crate) fn tensor(values: Vec<f32>, shape: Vec<usize>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

/// The result of an operation outside of any graph.
pub(crate) fn constant(tensor: FlexTensor) -> DispatchTensor {
    <DispatchTensor as DispatchKindConversion<Flex>>::from_backend(BackendTensor::Float(tensor))
}

/// The result of an operation in a graph.
pub(crate) fn attached(tensor: FloatTensor<Autodiff<Flex>>) -> DispatchTensor {
    <DispatchTensor as DispatchKindConversion<Autodiff<Flex>>>::from_backend(BackendTensor::Float(tensor))
}

/// How many numbers a tensor has, wherever it is.
pub(crate) fn count(tensor: &DispatchTensor) -> usize {
    tensor.shape().num_elements()
}

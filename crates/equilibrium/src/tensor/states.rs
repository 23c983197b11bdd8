//! States on one of burn's devices.
use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind};
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::host::{column, row_indices, row_mask, to_host};
use crate::states::{Changes, HostStates, PerSlot, States, Window};

/// States that can be made from tensors, and the other way round.
pub(super) trait TensorStates: States {
    fn from_tensor(tensor: Tensor<2>) -> Self;

    fn into_tensor(self, device: &Device) -> Tensor<2>;

    fn to_tensor(&self, device: &Device) -> Tensor<2> {
        self.clone().into_tensor(device)
    }
}

/// Whether a tensor is best worked on in this process's memory: 32-bit floats on the CPU.
pub(super) fn is_on_host<const D: usize>(tensor: &Tensor<D>) -> bool {
    let DispatchTensor { kind, autodiff: DispatchAutodiffContext::Disabled } = tensor.clone().into_dispatch() else {
        return false;
    };
    #[allow(irrefutable_let_patterns)] // The CPU may be the only backend there is.
    let DispatchTensorKind::Flex(BackendTensor::Float(tensor)) = kind else { return false };
    tensor.dtype() == DType::F32
}

impl TensorStates for HostStates {
    fn from_tensor(tensor: Tensor<2>) -> Self {
        let [rows, width] = tensor.dims();
        let values = tensor.try_into_vec_as::<f32>().expect("a float tensor can be read back as f32");
        Self::new(values, rows, width)
    }

    fn into_tensor(self, device: &Device) -> Tensor<2> {
        let shape = [self.rows(), self.width()];
        Tensor::from_data(TensorData::new(self.into_values(), shape), (device, DType::F32))
    }
}

/// The rows of a matrix; nothing where there is only room for one.
#[derive(Clone, Default)]
pub(super) struct DeviceStates(Option<Tensor<2>>);

impl TensorStates for DeviceStates {
    fn from_tensor(tensor: Tensor<2>) -> Self {
        Self(Some(tensor))
    }

    fn into_tensor(self, _: &Device) -> Tensor<2> {
        self.get()
    }
}

impl DeviceStates {
    fn get(&self) -> Tensor<2> {
        self.0.clone().expect("states are set before they are used")
    }

    fn dims(&self) -> [usize; 2] {
        self.0.as_ref().map_or([0, 0], Tensor::dims)
    }

    fn update(&mut self, f: impl FnOnce(Tensor<2>) -> Tensor<2>) {
        self.0 = self.0.take().map(f);
    }
}

impl States for DeviceStates {
    type Window = DeviceWindow;
    type Changes = DeviceChanges;

    fn rows(&self) -> usize {
        self.dims()[0]
    }

    fn width(&self) -> usize {
        self.dims()[1]
    }

    /// Room is made by whoever computes; what is old is given back.
    fn reserve_like(&mut self, _: &Self) {
        self.0 = None;
    }

    fn clear_like(&mut self, like: &Self) {
        self.0 = Some(like.get().zeros_like());
    }

    fn copy_from(&mut self, from: &Self) {
        self.0 = from.0.clone();
    }

    fn set_residual(&mut self, image: &Self, z: &Self, norms: &mut Vec<(f64, f64)>) {
        let norm_column = |rows: Tensor<2>| rows.square().sum_dim(1).sqrt();
        let residual = image.get() - z.get();
        let both = to_host(Tensor::cat(vec![norm_column(residual.clone()), norm_column(image.get())], 1));
        norms.clear();
        norms.extend(both.chunks(2).map(|pair| (pair[0], pair[1])));
        self.0 = Some(residual);
    }

    fn add(&mut self, other: &Self) {
        self.update(|own| own + other.get());
    }

    fn scale_and_add(&mut self, factor: f64, start: &Self) {
        self.update(|own| start.get() + own.mul_scalar(factor));
    }

    fn subtract_from(&mut self, start: &Self) {
        self.update(|own| start.get() - own);
    }

    fn negate(&mut self) {
        self.update(Tensor::neg);
    }

    fn scale_rows(&mut self, factors: &[f64]) {
        let zero: Vec<bool> = factors.iter().map(|&factor| factor == 0.0).collect();
        self.update(|own| {
            let (mask, factors) = (row_mask(&zero, &own), column(factors, &own));
            (own * factors).mask_fill(mask, 0.0)
        });
    }

    fn dots(&self, other: &Self, dots: &mut Vec<f64>) {
        *dots = to_host((self.get() * other.get()).sum_dim(1));
    }

    fn overwrite_rows(&mut self, marked: &[bool], from: &Self) {
        self.update(|own| {
            let mask = row_mask(marked, &own);
            own.mask_where(mask, from.get())
        });
    }

    fn keep_rows(&mut self, rows: &[usize]) {
        self.update(|own| {
            let indices = row_indices(rows, &own.device());
            own.select(0, indices)
        });
    }

    fn put_rows(&mut self, to: &[usize], from: &Self) {
        let mut source: Vec<usize> = (0..self.rows()).collect();
        to.iter().enumerate().for_each(|(at, &row)| source[row] = self.rows() + at);
        self.update(|own| {
            let indices = row_indices(&source, &own.device());
            Tensor::cat(vec![own, from.get()], 0).select(0, indices)
        });
    }
}

/// `[rows, slots, n]`
#[derive(Default)]
pub(super) struct DeviceWindow {
    states: Option<Tensor<3>>,
    slots: usize,
}

impl DeviceWindow {
    fn get(&self) -> Tensor<3> {
        self.states.clone().expect("a window is cleared before it is used")
    }
}

impl Window<DeviceStates> for DeviceWindow {
    fn clear(&mut self, slots: usize, like: &DeviceStates) {
        let like = like.get();
        let [rows, n] = like.dims();
        self.slots = slots;
        self.states = Some(Tensor::zeros([rows, slots, n], (&like.device(), like.dtype())));
    }

    fn set(&mut self, slot: usize, states: &DeviceStates) {
        let state = states.get();
        let [rows, n] = state.dims();
        let place = [0..rows, slot..slot + 1, 0..n];
        self.states = self.states.take().map(|states| states.slice_assign(place, state.unsqueeze_dim(1)));
    }

    /// Not a matrix product: GPUs round the factors of those to 10 bits (TF32), and Gram matrices do not survive that.
    fn dots(&self, states: &DeviceStates, dots: &mut PerSlot) {
        let products = (self.get() * states.get().unsqueeze_dim(1)).sum_dim(2);
        dots.set(to_host(products), self.slots);
    }

    fn add_combination(&self, y: &mut DeviceStates, factor: f64, weights: &PerSlot) {
        let states = self.get();
        let [rows, slots, _] = states.dims();
        let flat: Vec<f64> = weights.values().iter().map(|weight| factor * weight).collect();
        let weights = Tensor::<3>::from_data(TensorData::new(flat, [rows, 1, slots]), (&states.device(), states.dtype()));
        y.update(|y| y + weights.matmul(states).squeeze_dim(1));
    }

    fn keep_rows(&mut self, rows: &[usize]) {
        self.states = self.states.take().map(|states| {
            let indices = row_indices(rows, &states.device());
            states.select(0, indices)
        });
    }
}

/// The changes, the newest one of them and the last state that was pushed.
#[derive(Default)]
pub(super) struct DeviceChanges {
    changes: DeviceWindow,
    newest: DeviceStates,
    last: DeviceStates,
    width: usize,
    count: usize,
}

impl Changes<DeviceStates> for DeviceChanges {
    fn clear(&mut self, width: usize, like: &DeviceStates) {
        self.changes.clear(width, like);
        (self.newest, self.last) = (DeviceStates::default(), DeviceStates::default());
        (self.width, self.count) = (width, 0);
    }

    fn newest_slot(&self) -> Option<usize> {
        self.count.checked_sub(1).map(|number| number % self.width)
    }

    fn observe(&mut self, newest: &DeviceStates) {
        if let Some(slot) = self.newest_slot() {
            self.newest.copy_from(&self.last);
            self.newest.subtract_from(newest);
            self.changes.set(slot, &self.newest);
        }
    }

    fn dots(&self, newest: &DeviceStates, with_change: &mut PerSlot, with_state: &mut PerSlot) {
        self.changes.dots(&self.newest, with_change);
        self.changes.dots(newest, with_state);
    }

    fn subtract_combination(&self, y: &mut DeviceStates, newest: &DeviceStates, weights: &PerSlot) {
        y.copy_from(newest);
        self.changes.add_combination(y, -1.0, weights);
    }

    fn push(&mut self, newest: &DeviceStates) {
        self.last.copy_from(newest);
        self.count += 1;
    }

    fn keep_rows(&mut self, rows: &[usize]) {
        self.changes.keep_rows(rows);
        self.newest.keep_rows(rows);
        self.last.keep_rows(rows);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROWS: usize = 4;
    const WIDTH: usize = 5;

    /// The same numbers as both kinds of states.
    fn both(values: &[f32]) -> (HostStates, DeviceStates) {
        let host = HostStates::new(values.to_vec(), values.len() / WIDTH, WIDTH);
        let device = DeviceStates::from_tensor(host.to_tensor(&Device::default()));
        (host, device)
    }

    fn same(host: &HostStates, device: &DeviceStates) -> bool {
        let values = to_host(device.get());
        device.dims() == [host.rows(), host.width()]
            && host.values().iter().zip(values).all(|(host, device)| (f64::from(*host) - device).abs() < 1e-5)
    }

    /// One operation after another on states, with what they say to the host along the way.
    fn story<S: States>(a: &S, b: &S) -> (S, Vec<f64>) {
        let (mut state, mut told) = (S::default(), Vec::new());
        let (mut norms, mut dots) = (Vec::new(), Vec::new());
        state.set_residual(a, b, &mut norms);
        told.extend(norms.iter().flat_map(|pair| [pair.0, pair.1]));
        state.scale_and_add(0.3, b);
        state.add(a);
        state.subtract_from(b);
        state.negate();
        state.scale_rows(&[2.0, 0.0, -1.0, 0.5]);
        state.dots(a, &mut dots);
        told.extend(&dots);
        state.overwrite_rows(&[false, true, false, true], a);
        let mut some = state.clone();
        some.keep_rows(&[0, 2, 3]);
        state.clear_like(a);
        state.put_rows(&[3, 1, 0], &some);
        (state, told)
    }

    /// The same for past states and their changes.
    fn history<S: States>(states: &[S; 4]) -> (S, Vec<f64>) {
        let (mut window, mut changes) = (S::Window::default(), S::Changes::default());
        let (mut one, mut two, mut told) = (PerSlot::default(), PerSlot::default(), Vec::new());
        window.clear(3, &states[0]);
        changes.clear(2, &states[0]);
        for (number, state) in states[..3].iter().enumerate() {
            window.set(number.min(1), state);
            changes.observe(state);
            if changes.newest_slot().is_some() {
                changes.dots(state, &mut one, &mut two);
                told.extend(one.values().iter().chain(two.values()));
            }
            changes.push(state);
        }
        let rows = [1, 3];
        let mut last = states[3].clone();
        last.keep_rows(&rows);
        window.keep_rows(&rows);
        changes.keep_rows(&rows);
        window.dots(&last, &mut one);
        told.extend(one.values());
        changes.observe(&last);
        let mut y = S::default();
        two.set(vec![0.5, -0.25, 0.0, 2.0], 2);
        changes.subtract_combination(&mut y, &last, &two);
        window.add_combination(&mut y, 0.5, &one);
        changes.push(&last);
        told.push(changes.newest_slot().map_or(-1.0, |slot| slot as f64));
        (y, told)
    }

    fn told_the_same(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4)
    }

    proptest! {
        #[test]
        fn every_operation_does_the_same_in_memory_and_on_a_device(
            values in prop::collection::vec(-1.0..1.0f32, 4 * ROWS * WIDTH),
        ) {
            let (host, device): (Vec<_>, Vec<_>) = values.chunks(ROWS * WIDTH).map(both).unzip();
            let (in_memory, on_device) = (story(&host[0], &host[1]), story(&device[0], &device[1]));
            prop_assert!(same(&in_memory.0, &on_device.0) && told_the_same(&in_memory.1, &on_device.1));
            let host: [HostStates; 4] = host.try_into().expect("four");
            let device: [DeviceStates; 4] = device.try_into().ok().expect("four");
            let (in_memory, on_device) = (history(&host), history(&device));
            prop_assert!(same(&in_memory.0, &on_device.0) && told_the_same(&in_memory.1, &on_device.1));
        }
    }
}

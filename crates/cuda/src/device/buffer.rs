//! Memory on the device.
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, DevicePtr, DeviceRepr};
use fedeq_core::Result;

use super::failure::{Told, out_of_memory};
use super::usage::{Usage, outside};
use super::{Argument, Device};

/// An address on the device. It says nothing of how long what is there will live: whatever copies or fills looks whether it lies in a buffer.
#[repr(transparent)]
pub(crate) struct Pointer<T>(u64, PhantomData<fn() -> T>);

impl<T> Pointer<T> {
    /// What kernels take for "not there".
    pub(crate) const NULL: Self = Self(0, PhantomData);

    /// So many elements further on; the last address of all, which is in no buffer, where there are not so many.
    pub(crate) fn add(self, elements: usize) -> Self {
        Self(self.0.saturating_add(elements.saturating_mul(size_of::<T>()) as u64), PhantomData)
    }

    /// Whether it is "not there".
    pub(crate) fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address as a number, to tell places apart.
    pub(crate) fn address(self) -> u64 {
        self.0
    }

    /// The same address as that of something else.
    pub(crate) fn cast<U>(self) -> Pointer<U> {
        Pointer(self.0, PhantomData)
    }
}

impl<T> Clone for Pointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Pointer<T> {}

impl<T> fmt::Debug for Pointer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl<T> Argument for Pointer<T> {
    fn addresses(&self, tell: &mut dyn FnMut(u64)) {
        tell(self.0);
    }
}

/// What memory on the device can be made of.
///
/// # Safety
///
/// Any bits must be a value, so that whatever is found in memory may be read: plain numbers, and structures of them as in C.
pub(crate) unsafe trait Number: DeviceRepr {}

macro_rules! numbers {
    ($($number:ty)*) => {
        // SAFETY: any bits are a value of these.
        $(unsafe impl Number for $number {})*
    };
}

numbers! { u8 i32 u32 f32 f64 }

// SAFETY: any bits are a value of each element, and there is nothing between them.
unsafe impl<T: Number, const N: usize> Number for [T; N] {}

/// Memory on the device that is given back when it is dropped.
pub(crate) struct Buffer<T> {
    memory: CudaSlice<T>,
    address: u64,
    len: usize,
    bytes: u64,
    usage: Arc<Usage>,
}

impl<T: Number> Buffer<T> {
    /// Room for so many elements, with whatever is there; at least for one, so that every buffer has an address.
    pub(crate) fn new(device: &Device, len: usize) -> Result<Self> {
        let room = len.max(1);
        let full = |bytes| out_of_memory("hold what training needs", bytes, device.memory().ok());
        let bytes = bytes_of::<T>(room).map_err(|_| full(None))? as u64;
        // SAFETY: whatever is there is a value, since any bits are one of a `Number`; `room` elements are not too many bytes to count, which is not asked again.
        let memory = unsafe { device.stream.alloc::<T>(room) };
        let memory = memory.map_err(|_| full(Some(bytes)))?;
        let address = memory.device_ptr(&device.stream).0;
        device.memory.take(address, bytes);
        Ok(Self { memory, address, len, bytes, usage: Arc::clone(&device.memory) })
    }

    /// The same, with all bytes zero.
    pub(crate) fn zeros(device: &Device, len: usize) -> Result<Self> {
        let buffer = Self::new(device, len)?;
        device.fill_zero(buffer.pointer(), len)?;
        Ok(buffer)
    }

    /// A copy of these.
    pub(crate) fn of(device: &Device, values: &[T]) -> Result<Self> {
        let mut buffer = Self::new(device, values.len())?;
        buffer.write(device, 0, values)?;
        Ok(buffer)
    }

    /// Writes elements from `at` on.
    pub(crate) fn write(&mut self, device: &Device, at: usize, values: &[T]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        let mut to = self.memory.slice_mut(at..at + values.len());
        device.stream.memcpy_htod(values, &mut to).told("copy to the GPU")
    }

    /// Reads elements from `at` on; waits for all work given before.
    pub(crate) fn read(&self, device: &Device, at: usize, values: &mut [T]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        device.stream.memcpy_dtoh(&self.memory.slice(at..at + values.len()), values).told("copy from the GPU")?;
        device.synchronize()
    }

    /// Copies elements of another buffer, from `from` on, to `at`. Never while recording, which would not note the buffers ([`Device::copy`] does).
    pub(crate) fn copy_from(&mut self, device: &Device, at: usize, other: &Self, from: usize, len: usize) -> Result<()> {
        let mut to = self.memory.slice_mut(at..at + len);
        device.stream.memcpy_dtod(&other.memory.slice(from..from + len), &mut to).told("copy on the GPU")
    }
}

impl<T> Buffer<T> {
    /// Where it begins.
    pub(crate) fn pointer(&self) -> Pointer<T> {
        Pointer(self.address, PhantomData)
    }

    /// How many elements it has room for.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // What is in this memory may be asked for until here; it is freed behind all work given so far.
        self.usage.give_back(self.address, self.bytes);
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements at {:?}", self.len, self.pointer())
    }
}

impl Device {
    /// Reads elements where they are; waits for all work given before. Never while recording.
    pub(crate) fn read_now<T: Number>(&self, at: Pointer<T>, values: &mut [T]) -> Result<()> {
        self.context.bind_to_thread().told("use the GPU")?;
        let _alive = self.memory.hold(&[(at.0, bytes_of::<T>(values.len())?)])?;
        // SAFETY: as many bytes as `values` has lie in a buffer, which is not given back while `_alive` exists; `values` outlives the wait below; any bits are a value of a
        // `Number`.
        let asked = unsafe { cudarc::driver::result::memcpy_dtoh_async(values, at.0, self.stream.cu_stream()) };
        let waited = self.synchronize();
        asked.told("copy from the GPU")?;
        waited
    }

    /// Copies elements from one place to another. It may be captured.
    pub(crate) fn copy<T>(&self, from: Pointer<T>, to: Pointer<T>, len: usize) -> Result<()> {
        self.context.bind_to_thread().told("use the GPU")?;
        let bytes = bytes_of::<T>(len)?;
        let _alive = self.memory.hold(&[(from.0, bytes), (to.0, bytes)])?;
        // SAFETY: both places lie in buffers, which are not given back while `_alive` exists, and then behind this work, on the same stream.
        let done = unsafe { cudarc::driver::result::memcpy_dtod_async(to.0, from.0, bytes, self.stream.cu_stream()) };
        done.told("copy on the GPU")
    }

    /// Makes all bytes of so many elements zero. It may be captured.
    pub(crate) fn fill_zero<T>(&self, at: Pointer<T>, len: usize) -> Result<()> {
        self.fill(at, 0, len)
    }

    /// Makes all bytes of so many elements this one. It may be captured.
    pub(crate) fn fill<T>(&self, at: Pointer<T>, byte: u8, len: usize) -> Result<()> {
        self.context.bind_to_thread().told("use the GPU")?;
        let bytes = bytes_of::<T>(len)?;
        let _alive = self.memory.hold(&[(at.0, bytes)])?;
        // SAFETY: the place lies in a buffer, which is not given back while `_alive` exists, and then behind this work, on the same stream.
        let done = unsafe { cudarc::driver::result::memset_d8_async(at.0, byte, bytes, self.stream.cu_stream()) };
        done.told("fill memory")
    }
}

/// The bytes of so many elements.
fn bytes_of<T>(len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>()).ok_or_else(outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_beyond_all_memory_is_the_last_one() {
        let far = Pointer::<f64>::NULL.add(3);
        assert_eq!(far.address(), 24);
        assert_eq!(far.add(usize::MAX / 2).address(), u64::MAX);
        assert_eq!(far.add(usize::MAX / 8).address(), u64::MAX);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn more_elements_than_bytes_can_be_counted_are_refused_as_too_many() {
        let device = Device::new(0).expect("a GPU");
        for len in [usize::MAX, usize::MAX / 8 + 2] {
            let error = Buffer::<f64>::new(&device, len).map(|_| ()).expect_err("too many");
            assert!(matches!(error, fedeq_core::Error::OutOfMemory { .. }), "{error}");
        }
    }
}

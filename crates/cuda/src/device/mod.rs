//! An NVIDIA GPU through its driver: memory, kernels, launches.
//!
//! Nothing of CUDA is needed to build or to start the program. The driver is looked for when a device is asked for.
//!
//! # Layout
//! - this file: finding devices, and the one that is worked on
//! - `buffer`: memory on it; `usage`: which of it is taken
//! - `kernels`: the kernels by name, and launching them
//! - `profile`: where its time goes
//! - `failure`: the driver's errors in our words
mod buffer;
mod failure;
mod kernels;
mod profile;
mod usage;

use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute, CUmemPool_attribute, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream, result};
use fedeq_core::{Error, Result};

pub(crate) use buffer::{Buffer, Number, Pointer};
pub(crate) use failure::Told;
use kernels::Kernels;
pub(crate) use kernels::{Argument, Launch, argument, launch};
pub use profile::KernelTime;
use usage::Named;
pub(crate) use usage::Usage;

/// What there is to know of a GPU before it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, as in `cuda:1`.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// The part of it that is not in use at present.
    pub free: u64,
    /// Its compute capability, such as 9.0.
    pub capability: (u32, u32),
    /// The CUDA version of the driver, such as 12.4.
    pub driver: (u32, u32),
}

/// The oldest driver that understands the kernels, by its CUDA version.
const OLDEST_DRIVER: (u32, u32) = (12, 4);
/// The oldest cards that run them.
const OLDEST_CARD: (u32, u32) = (8, 0);

/// All GPUs of this machine. Fails where there is no driver, or an unusable one.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let driver = driver()?;
    let count = match CudaContext::device_count() {
        Err(error) if error.0 == CUresult::CUDA_ERROR_NO_DEVICE => 0,
        count => count.told("count the GPUs")?,
    };
    (0..count.max(0) as usize).map(|index| info(index, driver)).collect()
}

/// The name of a GPU that can be computed on, if there is one. No card is woken up for it.
pub fn usable_device() -> Option<String> {
    driver().ok()?;
    let count = CudaContext::device_count().ok()?;
    (0..count).find_map(|index| {
        let device = result::device::get(index).ok()?;
        let attribute = |which| {
            // SAFETY: the driver has just given this device out.
            unsafe { result::device::get_attribute(device, which) }.ok().map(|value| value as u32)
        };
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        ((major, minor) >= OLDEST_CARD).then(|| result::device::get_name(device).ok()).flatten()
    })
}

impl DeviceInfo {
    /// Refuses a card that is too old for the kernels.
    pub fn ensure_usable(&self) -> Result<()> {
        if self.capability >= OLDEST_CARD {
            return Ok(());
        }
        let problem = format!("`{}` has compute capability {}.{}", self.name, self.capability.0, self.capability.1);
        Err(Error::invalid(problem, "use a card from 8.0 on (Ampere or newer)"))
    }
}

fn info(index: usize, driver: (u32, u32)) -> Result<DeviceInfo> {
    let doing = "look at a GPU";
    let context = CudaContext::new(index).told(doing)?;
    let (free, memory) = context.mem_get_info().told(doing)?;
    Ok(DeviceInfo {
        index,
        name: context.name().told(doing)?,
        memory: memory as u64,
        free: free as u64,
        capability: capability(&context)?,
        driver,
    })
}

fn capability(context: &CudaContext) -> Result<(u32, u32)> {
    let (major, minor) = context.compute_capability().told("ask for a GPU's compute capability")?;
    Ok((major as u32, minor as u32))
}

/// The CUDA version of the driver.
fn driver() -> Result<(u32, u32)> {
    // SAFETY: it only tries to load the driver's library, whose initialisers are those of the system's own driver.
    if !unsafe { sys::is_culib_present() } {
        let remedy = "install NVIDIA's driver (`nvidia-smi` then lists the card), or leave `--device` out to compute on the CPU";
        return Err(Error::invalid("there is no NVIDIA driver: `libcuda` cannot be loaded", remedy));
    }
    let mut version = 0;
    // SAFETY: the library is there, and the pointer is valid for the one number that is written.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) };
    asked.result().told("ask for the driver's version")?;
    let driver = ((version / 1000) as u32, (version % 1000 / 10) as u32);
    if driver < OLDEST_DRIVER {
        let problem = format!("the NVIDIA driver knows CUDA {}.{} at most", driver.0, driver.1);
        return Err(Error::invalid(problem, "install a driver from 550 on, which knows CUDA 12.4"));
    }
    Ok(driver)
}

/// Lets the driver keep memory that is given back, for whoever asks next. Otherwise it would go back to the system whenever the device is waited for, and every round would map its memory again.
fn keep_freed_memory(context: &CudaContext) -> Result<()> {
    if !context.has_async_alloc() {
        return Ok(());
    }
    let mut most = u64::MAX;
    // SAFETY: the device is that of a living context, the pool its own, and the attribute a number of 64 bits, which is only read.
    let set = unsafe {
        let which = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        result::device::get_default_mem_pool(context.cu_device())
            .and_then(|pool| result::mem_pool::set_attribute(pool, which, std::ptr::from_mut(&mut most).cast()))
    };
    set.told("keep memory for later")
}

/// A GPU that is worked on: one stream of work, in order.
pub(crate) struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    kernels: Kernels,
    /// Shared memory that a block may have, in bytes.
    most_shared: usize,
    memory: Arc<Usage>,
    profile: profile::Profile,
}

impl Device {
    /// The GPU with this number.
    pub(crate) fn new(index: usize) -> Result<Arc<Self>> {
        let known = devices()?;
        let Some(info) = known.get(index) else {
            let names: Vec<String> = known.iter().map(|one| format!("`cuda:{}` ({})", one.index, one.name)).collect();
            let remedy = if names.is_empty() { "compute on the CPU".into() } else { format!("choose {}", names.join(" or ")) };
            return Err(Error::invalid(format!("there is no GPU `cuda:{index}`"), remedy));
        };
        info.ensure_usable()?;
        let context = CudaContext::new(index).told("use the GPU")?;
        // SAFETY: all work of this crate goes to the one stream below, in order, so that no event has to order it.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().told("use the GPU")?;
        keep_freed_memory(&context)?;
        let kernels = Kernels::new(Arc::clone(&context), info.capability);
        let most_shared = context
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
            .told("ask for a GPU's shared memory")? as usize;
        let (memory, profile) = (Arc::default(), profile::Profile::default());
        Ok(Arc::new(Self { context, stream, kernels, most_shared, memory, profile }))
    }

    /// Memory taken by this program.
    pub(crate) fn usage(&self) -> &Usage {
        &self.memory
    }

    /// Bytes that are not in use, and all there are.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        let (free, all) = self.context.mem_get_info().told("ask for the GPU's memory")?;
        Ok((free as u64, all as u64))
    }

    /// Whether this is a Hopper card, whose matrix instructions some kernels use.
    pub(crate) fn is_hopper(&self) -> bool {
        self.kernels.is_hopper()
    }

    /// Shared memory that a block may have, in bytes.
    pub(crate) fn most_shared(&self) -> usize {
        self.most_shared
    }

    /// Waits until all work given so far is done; errors of it appear here.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().told("wait for the GPU")
    }

    /// Whether work is being recorded, so that nothing may be waited for.
    pub(crate) fn is_recording(&self) -> Result<bool> {
        let status = self.stream.capture_status().told("record a training step")?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Records what `work` launches instead of running it, so that it can be repeated with one call.
    ///
    /// Nothing in it may wait for the device, ask for memory or copy from or to the host.
    pub(crate) fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Repeatable> {
        let doing = "record a training step";
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).told(doing)?;
        self.memory.start_recording();
        let done = work();
        let buffers = self.memory.end_recording();
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        done?;
        let graph = graph.told(doing)?.ok_or_else(|| Error::invalid("nothing was recorded", "report this as a bug"))?;
        Ok(Repeatable { graph, buffers, memory: Arc::clone(&self.memory) })
    }
}

/// Launches that are repeated with one call.
pub(crate) struct Repeatable {
    graph: CudaGraph,
    /// The buffers that they were given.
    buffers: Vec<Named>,
    memory: Arc<Usage>,
}

// SAFETY: CUDA asks that one graph is not used by several threads at once; it is owned and used through `&mut`.
unsafe impl Send for Repeatable {}

impl Repeatable {
    /// Whether the buffers of what was recorded are still there. If not, it has to be recorded again.
    pub(crate) fn is_whole(&self) -> bool {
        self.memory.hold_named(&self.buffers).is_some()
    }

    /// Runs all of it once more. Refused if one of its buffers has been given back.
    ///
    /// # Safety
    ///
    /// As for `Device::launch`: with what the buffers hold by then, no launch that was recorded may read or write anything outside of the buffers that it was given.
    pub(crate) unsafe fn run(&mut self) -> Result<()> {
        let gone = || Error::invalid("a recorded step needs memory of the GPU that was given back", "report this as a bug");
        let _alive = self.memory.hold_named(&self.buffers).ok_or_else(gone)?;
        self.graph.launch().told("repeat a training step")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Cohort;

    #[test]
    #[ignore = "needs a GPU"]
    fn what_was_recorded_is_repeated_in_no_other_buffers() {
        let device = Device::new(0).expect("a GPU");
        let read = |buffer: &Buffer<i32>| {
            let mut found = [0; 64];
            buffer.read(&device, 0, &mut found).expect("read");
            found
        };
        let buffer = Buffer::of(&device, &[1; 64]).expect("memory");
        let mut recorded = device.capture(|| device.fill(buffer.pointer(), 0xff, 64)).expect("recorded");
        assert_eq!((recorded.is_whole(), read(&buffer)), (true, [1; 64]));
        // SAFETY: it writes to all of a buffer and nothing else.
        unsafe { recorded.run() }.expect("run");
        assert_eq!(read(&buffer), [-1; 64]);
        drop(buffer);
        // It may well be where the last one was.
        let next = Buffer::of(&device, &[2; 64]).expect("memory");
        assert!(!recorded.is_whole());
        // SAFETY: as before; besides, it is refused.
        let refused = unsafe { recorded.run() }.expect_err("refused").to_string();
        assert!(refused.contains("given back"), "{refused}");
        assert_eq!(read(&next), [2; 64]);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn kernels_are_given_no_address_that_is_in_no_buffer() {
        let device = Device::new(0).expect("a GPU");
        let counts = Buffer::<i32>::zeros(&device, 1).expect("memory");
        let spans = Buffer::of(&device, &[0, 3]).expect("memory");
        let count = |spans: Pointer<[i32; 2]>, counts: Pointer<i32>| {
            let cohort = Cohort { spans, rows: Pointer::NULL };
            launch!(device, Launch::new("count_samples", [1, 1, 1], 128); cohort, counts, 1_i32)
        };
        count(spans.pointer().cast(), counts.pointer()).expect("both are there");
        let mut found = [0];
        counts.read(&device, 0, &mut found).expect("read");
        assert_eq!(found, [3]);
        let gone = Buffer::<i32>::zeros(&device, 2).expect("memory").pointer();
        for (spans, counts) in [(spans.pointer(), gone), (gone, counts.pointer())] {
            let refused = count(spans.cast(), counts).expect_err("refused").to_string();
            assert_eq!(refused, "`count_samples` was given an address that is in no buffer");
        }
    }
}

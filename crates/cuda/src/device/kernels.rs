//! The kernels by name, and launching them.
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUfunction_attribute, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule};
use cudarc::nvrtc::Ptx;
use fedeq_core::{Error, Result};

use super::{Device, Told};

/// Lists the PTX that the program carries: files for every card, and files for Hopper cards alone.
macro_rules! ptx {
    ($($file:literal)*; hopper: $($hopper:literal)*) => {
        const EVERY: &[&str] = &[$(include_str!(concat!("../../ptx/", $file, ".80.ptx"))),*];
        const HOPPER: &[&str] = &[$(include_str!(concat!("../../ptx/", $hopper, ".90a.ptx"))),*];
    };
}

ptx! {
    "anderson" "attention" "attention_f16" "batch_norm" "cell" "conv" "conv_exact" "conv_weights" "contrast" "dense" "dense_few" "dropout" "embedding" "gelu" "gmres" "group_norm" "group_norm_block"
    "head" "input" "knn" "lanes" "layer_norm" "layers" "mean_pool" "mlp" "optimiser" "pool" "projection" "samples" "schedule" "shortcut" "step" "tally"
    "norm_pool" "warm" "weights";
    hopper: "conv_planes_sm90" "conv_sm90" "conv_weights_planes_sm90" "conv_weights_sm90"
}

/// All kernels for a card; a file of them is loaded when the first of its kernels is asked for.
pub(super) struct Kernels {
    context: Arc<CudaContext>,
    hopper: bool,
    /// The file of every kernel.
    files: HashMap<&'static str, &'static str>,
    loaded: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    /// By the address of their text.
    modules: HashMap<*const u8, Arc<CudaModule>>,
    kernels: HashMap<&'static str, Arc<Kernel>>,
}

// SAFETY: the pointers are keys that are not followed.
unsafe impl Send for Loaded {}

/// A kernel that has been loaded.
struct Kernel {
    function: CudaFunction,
    /// The size of each of its parameters in bytes.
    parameters: Vec<usize>,
    /// The dynamic shared memory it may use so far.
    shared: Mutex<usize>,
}

/// Dynamic shared memory that needs no permission.
const FREE_SHARED: usize = 48 * 1024;

impl Kernels {
    pub(super) fn new(context: Arc<CudaContext>, capability: (u32, u32)) -> Self {
        let hopper = capability == (9, 0);
        let mut files = HashMap::new();
        for text in EVERY.iter().chain(if hopper { HOPPER } else { &[] }) {
            files.extend(entries(text).map(|name| (name, *text)));
        }
        Self { context, hopper, files, loaded: Mutex::default() }
    }

    pub(super) fn is_hopper(&self) -> bool {
        self.hopper
    }

    fn get(&self, name: &'static str) -> Result<Arc<Kernel>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = loaded.kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let Some(&text) = self.files.get(name) else {
            return Err(Error::invalid(format!("there is no kernel `{name}` for this card"), "report this as a bug"));
        };
        let module = match loaded.modules.get(&text.as_ptr()) {
            Some(module) => Arc::clone(module),
            None => {
                let module = self.context.load_module(Ptx::from_src(text)).told("load its kernels")?;
                loaded.modules.insert(text.as_ptr(), Arc::clone(&module));
                module
            }
        };
        let function = module.load_function(name).told("load a kernel")?;
        let parameters = parameters_of(&function)?;
        let kernel = Arc::new(Kernel { function, parameters, shared: Mutex::new(FREE_SHARED) });
        loaded.kernels.insert(name, Arc::clone(&kernel));
        Ok(kernel)
    }
}

/// The names of the kernels in a file.
fn entries(ptx: &'static str) -> impl Iterator<Item = &'static str> {
    const MARK: &str = ".visible .entry ";
    ptx.match_indices(MARK).filter_map(|(at, _)| ptx[at + MARK.len()..].split('(').next()).map(str::trim)
}

fn parameters_of(function: &CudaFunction) -> Result<Vec<usize>> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded, and both pointers are valid for the numbers that are written.
        let asked = unsafe { sys::cuFuncGetParamInfo(function.cu_function(), sizes.len(), &mut offset, &mut size) };
        match asked {
            CUresult::CUDA_SUCCESS => sizes.push(size),
            CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(sizes),
            other => return other.result().told("ask for a kernel's parameters").map(|()| sizes),
        }
    }
}

impl Kernel {
    /// Lets the kernel use so much dynamic shared memory.
    fn allow(&self, shared: usize) -> Result<()> {
        let mut allowed = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared > *allowed {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            self.function.set_attribute(attribute, shared as i32).told("give a kernel its shared memory")?;
            *allowed = shared;
        }
        Ok(())
    }
}

/// What may be handed to a kernel: plain numbers, pointers, and structures of them laid out as in C. (That its bytes may be read is all the driver needs; whether they are what
/// the kernel takes is asked of [`Device::launch`]'s callers.)
pub(crate) trait Argument: Copy {}

impl Argument for i32 {}
impl Argument for i64 {}
impl Argument for u64 {}
impl Argument for f32 {}
impl Argument for f64 {}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: &'static str,
    pub(crate) grid: [usize; 3],
    pub(crate) threads: [usize; 3],
    /// Dynamic shared memory in bytes.
    pub(crate) shared: usize,
}

impl Launch {
    /// Blocks in a row of so many threads.
    pub(crate) fn new(kernel: &'static str, grid: [usize; 3], threads: usize) -> Self {
        Self { kernel, grid, threads: [threads, 1, 1], shared: 0 }
    }

    /// The same with dynamic shared memory.
    pub(crate) fn shared(self, shared: usize) -> Self {
        Self { shared, ..self }
    }
}

/// One argument: where it is, and its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed<'a> {
    at: *const c_void,
    size: usize,
    of: std::marker::PhantomData<&'a ()>,
}

impl<'a, T: Argument> From<&'a T> for Passed<'a> {
    fn from(value: &'a T) -> Self {
        Self { at: std::ptr::from_ref(value).cast(), size: size_of::<T>(), of: std::marker::PhantomData }
    }
}

/// `launch!(device, launch; first, second, ...)`: launches a kernel with these arguments.
///
/// Whoever writes it vouches for what [`Device::launch`] asks for: that the kernel, with these sizes, stays in the buffers it is given.
macro_rules! launch {
    ($device:expr, $launch:expr; $($argument:expr),* $(,)?) => {{
        let device: &$crate::device::Device = &$device;
        let launch = $launch;
        // SAFETY: which kernel takes what stands beside the launch, in the file of the operation whose plan gave the buffers their sizes.
        unsafe { device.launch(launch, &[$((&$argument).into()),*]) }
    }};
}
pub(crate) use launch;

impl Device {
    /// Adds a kernel to the work to be done. An empty grid is nothing to do.
    ///
    /// Arguments are compared with the kernel's parameters by their sizes.
    ///
    /// # Safety
    ///
    /// With these arguments the kernel must read and write only what lies in buffers of this device, which are given back no earlier than the launch is in the stream. (Most cards
    /// answer any other address with an error when they are next waited for, but there are systems on which a card reaches all memory of the host.)
    pub(crate) unsafe fn launch(&self, launch: Launch, arguments: &[Passed<'_>]) -> Result<()> {
        let Launch { kernel: name, grid, threads, shared } = launch;
        if grid.contains(&0) {
            return Ok(());
        }
        let kernel = self.kernels.get(name)?;
        if !arguments.iter().map(|argument| argument.size).eq(kernel.parameters.iter().copied()) {
            let given: Vec<usize> = arguments.iter().map(|argument| argument.size).collect();
            let problem = format!("`{name}` takes parameters of {:?} bytes and was given {given:?}", kernel.parameters);
            return Err(Error::invalid(problem, "report this as a bug"));
        }
        kernel.allow(shared)?;
        self.context.bind_to_thread().told("use the GPU")?;
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(|argument| argument.at.cast_mut()).collect();
        let [grid, threads] = [sizes(name, grid)?, sizes(name, threads)?];
        let mut work = || {
            // SAFETY: every pointer is that of a live reference to as many bytes as the driver reads, which was checked above; it only reads them. What the kernel does is what the
            // caller vouches for.
            let launched = unsafe {
                let (function, stream) = (kernel.function.cu_function(), self.stream.cu_stream());
                cudarc::driver::result::launch_kernel(function, grid, threads, shared as u32, stream, &mut pointers)
            };
            launched.told(&format!("launch `{name}` ({grid:?} blocks of {threads:?} threads)"))
        };
        if self.profile.is_on() { self.timed(name, work) } else { work() }
    }
}

/// Sizes as the driver takes them.
fn sizes(kernel: &str, [x, y, z]: [usize; 3]) -> Result<(u32, u32, u32)> {
    let too_many = |_| {
        Error::invalid(format!("`{kernel}` was to run in {x}x{y}x{z} parts at once"), "take smaller batches or fewer clients")
    };
    Ok((u32::try_from(x).map_err(too_many)?, u32::try_from(y).map_err(too_many)?, u32::try_from(z).map_err(too_many)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_kernels_and_no_name_comes_twice() {
        let mut names: Vec<&str> = EVERY.iter().chain(HOPPER).flat_map(|text| entries(text)).collect();
        assert!(EVERY.iter().chain(HOPPER).all(|text| entries(text).next().is_some()));
        assert!(names.contains(&"anderson_look") && names.contains(&"conv_sm90"));
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn every_committed_file_is_carried() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ptx");
        let files = std::fs::read_dir(folder)
            .expect("the folder")
            .filter(|file| file.as_ref().is_ok_and(|file| file.path().extension().is_some_and(|extension| extension == "ptx")));
        assert_eq!(files.count(), EVERY.len() + HOPPER.len());
    }
}

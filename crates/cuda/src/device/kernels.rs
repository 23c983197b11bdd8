//! The kernels by name, and launching them.
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUfunction_attribute, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule};
use cudarc::nvrtc::Ptx;
use fedeq_core::{Error, Result};

use super::usage::Held;
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

/// What may be handed to a kernel: plain numbers, pointers, and structures of them laid out as in C, for which [`argument!`] writes this. (That its bytes may be read is all the
/// driver needs; whether they are what the kernel takes is asked of [`Device::launch`]'s callers.)
pub(crate) trait Argument {
    /// Tells the addresses in it, so that it can be looked where they lead.
    fn addresses(&self, tell: &mut dyn FnMut(u64));
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Argument for $number {
            fn addresses(&self, _: &mut dyn FnMut(u64)) {}
        })*
    };
}

numbers! { i32 i64 u64 f32 f64 }

impl<T: Argument, const N: usize> Argument for [T; N] {
    fn addresses(&self, tell: &mut dyn FnMut(u64)) {
        self.iter().for_each(|one| one.addresses(tell));
    }
}

/// `argument!(Structure { first, second, ... })`: makes an argument of a structure, given all of its fields.
macro_rules! argument {
    ($structure:ident { $($field:ident),* $(,)? }) => {
        impl $crate::device::Argument for $structure {
            fn addresses(&self, tell: &mut dyn FnMut(u64)) {
                // A field that is not named does not compile.
                let Self { $($field),* } = self;
                $($crate::device::Argument::addresses($field, tell);)*
            }
        }
    };
}
pub(crate) use argument;

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

/// `launch!(device, launch; first, second, ...)`: launches a kernel with these arguments.
///
/// Whoever writes it vouches for what [`Device::launch`] asks for: that the kernel, with these sizes, stays in the buffers that its addresses are in.
macro_rules! launch {
    ($device:expr, $launch:expr; $($argument:expr),* $(,)?) => {{
        let device: &$crate::device::Device = &$device;
        let launch = $launch;
        // SAFETY: which kernel takes what, and how far it goes from the addresses it is given, stands beside the launch, in the file of the operation whose plan gave the buffers their
        // sizes. That these are in buffers is looked at by `launch` itself.
        unsafe { device.launch(launch, &[$(&$argument),*]) }
    }};
}
pub(crate) use launch;

impl Device {
    /// Adds a kernel to the work to be done. An empty grid is nothing to do.
    ///
    /// Arguments are compared with the kernel's parameters by their sizes, and every address among them must be null or in a buffer, which is then given back no earlier than the
    /// launch is in the stream.
    ///
    /// # Safety
    ///
    /// With these arguments, and what the buffers hold by then, the kernel must read and write nothing outside of the buffers that its addresses are in. (Most cards answer any
    /// other address with an error when they are next waited for, but there are systems on which a card reaches all memory of the host.)
    pub(crate) unsafe fn launch(&self, launch: Launch, arguments: &[&dyn Argument]) -> Result<()> {
        let Launch { kernel: name, grid, threads, shared } = launch;
        if grid.contains(&0) {
            return Ok(());
        }
        let kernel = self.kernels.get(name)?;
        if !arguments.iter().map(|argument| size_of_val(*argument)).eq(kernel.parameters.iter().copied()) {
            let given: Vec<usize> = arguments.iter().map(|argument| size_of_val(*argument)).collect();
            let problem = format!("`{name}` takes parameters of {:?} bytes and was given {given:?}", kernel.parameters);
            return Err(Error::invalid(problem, "report this as a bug"));
        }
        kernel.allow(shared)?;
        self.context.bind_to_thread().told("use the GPU")?;
        let mut pointers: Vec<*mut c_void> =
            arguments.iter().map(|argument| std::ptr::from_ref(*argument).cast_mut().cast()).collect();
        let [grid, threads] = [sizes(name, grid)?, sizes(name, threads)?];
        let _alive = self.hold_named_by(name, arguments)?;
        let mut work = || {
            // SAFETY: every pointer is that of a live reference to as many bytes as the driver reads, which was checked above; it only reads them. The buffers that addresses are in are
            // not given back while `_alive` exists, and then behind this work, on the same stream. That the kernel stays in them is what the caller vouches for.
            let launched = unsafe {
                let (function, stream) = (kernel.function.cu_function(), self.stream.cu_stream());
                cudarc::driver::result::launch_kernel(function, grid, threads, shared as u32, stream, &mut pointers)
            };
            launched.told(&format!("launch `{name}` ({grid:?} blocks of {threads:?} threads)"))
        };
        if self.profile.is_on() { self.timed(name, work) } else { work() }
    }

    /// Keeps all buffers, if every address in these arguments is null or in one of them.
    fn hold_named_by(&self, kernel: &str, arguments: &[&dyn Argument]) -> Result<Held<'_>> {
        let mut places = Vec::new();
        let mut tell = |address| {
            if address != 0 {
                places.push((address, 0));
            }
        };
        arguments.iter().for_each(|argument| argument.addresses(&mut tell));
        let lost = |_| Error::invalid(format!("`{kernel}` was given an address that is in no buffer"), "report this as a bug");
        self.memory.hold(&places).map_err(lost)
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
    use crate::device::Pointer;

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
    fn structures_tell_all_their_addresses() {
        struct Inner {
            at: Pointer<u8>,
            count: i32,
        }
        struct Outer {
            first: Pointer<f32>,
            inner: [Inner; 2],
            rate: f64,
        }
        argument!(Inner { at, count });
        argument!(Outer { first, inner, rate });
        let inner = [3, 5].map(|at| Inner { at: Pointer::NULL.add(at), count: 7 });
        let outer = Outer { first: Pointer::NULL.add(2), inner, rate: 11.0 };
        let mut told = Vec::new();
        outer.addresses(&mut |address| told.push(address));
        assert_eq!(told, [8, 3, 5]);
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

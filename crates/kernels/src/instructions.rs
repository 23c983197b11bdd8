//! Which vector instructions a kernel uses.
use std::any::TypeId;
use std::sync::OnceLock;

use pulp::{Scalar256b, Simd, WithSimd};

use crate::gemm::{load, store};

/// Numbers in the largest vector there is.
pub(crate) const WIDEST: usize = 16;

/// A set of vector instructions this machine has.
///
/// Kernels are written once, generic over [`pulp::Simd`], and compiled for each set; [`InstructionSet::best`] picks one when the program
/// runs. Results of different sets differ by rounding.
#[derive(Clone, Copy, Debug)]
pub struct InstructionSet(Set);

#[derive(Clone, Copy, Debug)]
enum Set {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    #[cfg(target_arch = "x86_64")]
    Avx512(pulp::x86::V4),
    #[cfg(target_arch = "aarch64")]
    Neon(pulp::aarch64::Neon),
}

impl InstructionSet {
    /// The fastest one this machine has; asked once.
    pub fn best() -> Self {
        static BEST: OnceLock<InstructionSet> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().pop().expect("the portable one is always there"))
    }

    /// All this machine has, slowest first.
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Self(Set::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            sets.extend(pulp::x86::V3::try_new().map(|set| Self(Set::Avx2(set))));
            sets.extend(pulp::x86::V4::try_new().map(|set| Self(Set::Avx512(set))));
        }
        #[cfg(target_arch = "aarch64")]
        sets.extend(pulp::aarch64::Neon::try_new().map(|set| Self(Set::Neon(set))));
        sets
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => "NEON",
        }
    }

    /// How many numbers one of its vectors has.
    pub fn lanes(self) -> usize {
        self.run(Lanes)
    }

    /// Runs a kernel compiled for these instructions.
    #[inline]
    pub fn run<K: WithSimd>(self, kernel: K) -> K::Output {
        match self.0 {
            Set::Portable => Simd::vectorize(Scalar256b, kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(set) => Simd::vectorize(set, kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(set) => Simd::vectorize(set, kernel),
            #[cfg(target_arch = "aarch64")]
            Set::Neon(set) => Simd::vectorize(set, kernel),
        }
    }
}

/// The numbers of a vector, and zeros behind them.
#[inline(always)]
pub(crate) fn to_array<S: Simd>(simd: S, vector: S::f32s) -> [f32; WIDEST] {
    const { assert!(S::F32_LANES <= WIDEST) };
    let mut numbers = [0.0; WIDEST];
    // SAFETY: no vector is longer than the array.
    unsafe { store(simd, numbers.as_mut_ptr(), vector, None) };
    numbers
}

/// The vector of the first numbers of an array.
#[inline(always)]
pub(crate) fn from_array<S: Simd>(simd: S, numbers: &[f32; WIDEST]) -> S::f32s {
    const { assert!(S::F32_LANES <= WIDEST) };
    // SAFETY: no vector is longer than the array.
    unsafe { load(simd, numbers.as_ptr(), None) }
}

/// Counts the numbers of a vector.
struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// `a b + c`, rounded once where the machine can do that in one instruction.
#[inline(always)]
pub(crate) fn multiply_add<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
    // Without such an instruction a fused operation is a library call a lane, a hundred times slower.
    if TypeId::of::<S>() == TypeId::of::<Scalar256b>() {
        simd.add_f32s(simd.mul_f32s(a, b), c)
    } else {
        simd.mul_add_f32s(a, b, c)
    }
}

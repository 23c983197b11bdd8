//! What is done before and after the solves of a training step: recalling, remembering and counting.
use cudarc::driver::DeviceRepr;
use fedeq_core::{Result, SolveTally};
use half::f16;

use super::state::Home;
use super::warm::{Memory, Places};
use crate::device::{Buffer, Launch, Number, Pointer, argument, launch};
use crate::op::equilibrium::{SolveHook, Solved, State};
use crate::op::{Cohort, PassContext};
use crate::plan::Purpose;

/// How the solves of a lane went. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    residual: f64,
    samples: u64,
    steps: u64,
    unconverged: u64,
    not_finite: u64,
    warm: u64,
}

// SAFETY: six numbers of eight bytes as in C.
unsafe impl DeviceRepr for Tally {}

// SAFETY: any bits are a value of each.
unsafe impl Number for Tally {}

impl From<Tally> for SolveTally {
    fn from(tally: Tally) -> Self {
        let Tally { residual, samples, steps, unconverged, not_finite, warm } = tally;
        Self { samples, steps, residual, unconverged, not_finite, warm }
    }
}

/// Where remembered states are. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy)]
struct Warm {
    counter: Pointer<i32>,
    places: Pointer<i32>,
    known: Pointer<u8>,
    cohort: Cohort,
    n: i64,
    slots: i32,
    most: i32,
}

argument!(Warm { counter, places, known, cohort, n, slots, most });

/// Counts the solves of a cohort, lane by lane, and lets them start where earlier ones ended.
pub(crate) struct SolveHooks {
    /// Nothing where the network solves for no fixed point, or nothing is trained.
    counting: Option<Counting>,
}

struct Counting {
    /// `[lanes]`: of all steps, and after the first one.
    tallies: Buffer<Tally>,
    first: Buffer<Tally>,
    warm: Option<Warming>,
    counter: Pointer<i32>,
    most: usize,
}

/// Tables of slots, and the memory they are slots of.
struct Warming {
    recall: Buffer<i32>,
    remember: Buffer<i32>,
    /// Which samples of the batch started warm.
    flags: Buffer<u8>,
    states: Pointer<u8>,
    known: Pointer<u8>,
    half: bool,
    slots: usize,
}

impl SolveHooks {
    pub(crate) fn new(home: &Home, purpose: Purpose) -> Result<Self> {
        if purpose.trains.is_none() || !home.graph.is_equilibrium() {
            return Ok(Self { counting: None });
        }
        let lanes = purpose.size.lanes;
        let counting = Counting {
            tallies: Buffer::zeros(&home.device, lanes)?,
            first: Buffer::zeros(&home.device, lanes)?,
            warm: None,
            counter: Pointer::NULL,
            most: purpose.size.most,
        };
        Ok(Self { counting: Some(counting) })
    }

    /// A phase begins: nothing has been solved.
    pub(crate) fn begin(&self, home: &Home) -> Result<()> {
        let Some(counting) = &self.counting else { return Ok(()) };
        home.device.fill_zero(counting.tallies.pointer(), counting.tallies.len())?;
        home.device.fill_zero(counting.first.pointer(), counting.first.len())
    }

    /// The steps to come, and where their samples' states are.
    pub(crate) fn schedule(&mut self, home: &Home, counter: Pointer<i32>, memory: Option<(&Memory, Places)>) -> Result<()> {
        let Some(counting) = &mut self.counting else { return Ok(()) };
        counting.counter = counter;
        let Some((memory, places)) = memory else {
            counting.warm = None;
            return Ok(());
        };
        let wanted = places.recall.len();
        // Tables stay where they are if they are large enough; the memory may be another one.
        let tables = match counting.warm.take() {
            Some(Warming { recall, remember, flags, .. }) if recall.len() >= wanted => (recall, remember, flags),
            _ => {
                let table = || Buffer::new(&home.device, wanted + wanted / 4);
                (table()?, table()?, Buffer::zeros(&home.device, counting.tallies.len() * counting.most)?)
            }
        };
        let (recall, remember, flags) = tables;
        let (states, known, half, slots) = (memory.states(), memory.known(), memory.is_half(), memory.slots);
        let mut warm = Warming { recall, remember, flags, states, known, half, slots };
        warm.recall.write(&home.device, 0, &places.recall)?;
        warm.remember.write(&home.device, 0, &places.remember)?;
        counting.warm = Some(warm);
        Ok(())
    }

    /// The first step of a phase has been given to the device.
    pub(crate) fn after_first_step(&mut self, home: &Home) -> Result<()> {
        let Some(Counting { tallies, first, .. }) = &mut self.counting else { return Ok(()) };
        let lanes = tallies.len();
        first.copy_from(&home.device, 0, tallies, 0, lanes)
    }

    /// How the solves of each lane went, in all and in the first step; waits for them.
    pub(crate) fn tallies(&self, home: &Home, lanes: usize) -> Result<Vec<[SolveTally; 2]>> {
        let Some(Counting { tallies, first, .. }) = &self.counting else {
            return Ok(vec![Default::default(); lanes]);
        };
        let read = |from: &Buffer<Tally>| -> Result<Vec<Tally>> {
            let mut values = vec![Tally::default(); lanes];
            from.read(&home.device, 0, &mut values)?;
            Ok(values)
        };
        Ok(read(tallies)?.into_iter().zip(read(first)?).map(|(all, first)| [all.into(), first.into()]).collect())
    }

    /// What a recorded step depends on.
    pub(crate) fn fingerprint(&self) -> Vec<u64> {
        let Some(Counting { warm, counter, .. }) = &self.counting else { return Vec::new() };
        let tables = warm.iter().flat_map(|warm| {
            [
                warm.recall.pointer().address(),
                warm.remember.pointer().address(),
                warm.states.address(),
                warm.known.address(),
                warm.slots as u64,
            ]
        });
        tables.chain([counter.address()]).collect()
    }

    /// The same pass, with what is done before and after its solve.
    pub(crate) fn of<'a>(&'a self, run: PassContext<'a>) -> PassContext<'a> {
        let hook = self.counting.as_ref().map(|counting| counting as &dyn SolveHook);
        PassContext { hook, ..run }
    }
}

impl Counting {
    fn kernel(&self, warm: &Warming, places: &Buffer<i32>, run: &PassContext<'_>, each: usize) -> Warm {
        let (places, known) = (places.pointer(), warm.known);
        let [slots, most] = [warm.slots, self.most].map(|count| count as i32);
        Warm { counter: self.counter, places, known, cohort: run.cohort, n: each as i64, slots, most }
    }
}

impl SolveHook for Counting {
    fn before(&self, run: &PassContext<'_>, z: State, each: usize) -> Result<()> {
        let Some(warm) = &self.warm else { return Ok(()) };
        let (call, flags) = (self.kernel(warm, &warm.recall, run, each), warm.flags.pointer());
        let grid = run.by_sample(each.div_ceil(1024));
        if warm.half {
            launch!(run.device, Launch::new("recall_f16", grid, 256); call, warm.states.cast::<f16>(), z.numbers, z.halves, flags)
        } else {
            launch!(run.device, Launch::new("recall_f32", grid, 256); call, warm.states.cast::<f32>(), z.numbers, z.halves, flags)
        }
    }

    fn after(&self, run: &PassContext<'_>, solved: Solved) -> Result<()> {
        let Solved { progress, z, each } = solved;
        let flags = self.warm.as_ref().map_or(Pointer::NULL, |warm| warm.flags.pointer());
        let lanes = run.size.lanes;
        launch!(run.device, Launch::new("tally_solves", [lanes, 1, 1], 128); run.at::<u8>(progress), flags, self.tallies.pointer(), run.cohort)?;
        let Some(warm) = &self.warm else { return Ok(()) };
        let (call, grid) = (self.kernel(warm, &warm.remember, run, each), run.by_sample(1));
        if warm.half {
            launch!(run.device, Launch::new("remember_f16", grid, 1024); call, run.at::<f32>(z), warm.states.cast::<f16>())
        } else {
            launch!(run.device, Launch::new("remember_f32", grid, 1024); call, run.at::<f32>(z), warm.states.cast::<f32>())
        }
    }
}

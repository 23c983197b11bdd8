//! Normalisations agree with their definition, and their gradients with differences of it.
mod reference;

use fedeq_kernels::InstructionSet;
use fedeq_kernels::activation::Activation;
use fedeq_kernels::norm::{Affine, AffineTargets, BatchShape, Fusion, Moments, Norm, NormSaved, NormScope, NormScratch};
use reference::{Inputs, Slopes, assert_close, before, dot, double, moments, normalize, numbers};

const FUSIONS: [Fusion; 5] = [
    Fusion::None,
    Fusion::Before(Activation::Relu),
    Fusion::Before(Activation::Softplus),
    Fusion::After(Activation::Relu),
    Fusion::After(Activation::Softplus),
];

/// Every scope and fusion, with shapes of all sorts.
fn norms() -> Vec<Norm> {
    let shapes =
        [(1, 1, 1, 16), (5, 1, 1, 40), (2, 3, 2, 8), (3, 2, 9, 24), (1, 7, 5, 40), (1, 5, 6, 64), (2, 3, 2, 80), (3, 1, 7, 16)];
    let shapes = shapes.map(|(batch, height, width, channels)| BatchShape { batch, height, width, channels });
    let mut norms = Vec::new();
    for fusion in FUSIONS {
        for shape in shapes {
            norms.extend([NormScope::Plane, NormScope::Row].map(|scope| Norm::group(shape, scope, fusion)));
            norms.push(Norm { groups: 2, ..Norm::group(shape, NormScope::Plane, fusion) });
            norms.push(Norm::batch(shape, fusion));
        }
        // More pixels than are summed in one go, and channels that fill no vector.
        norms.push(Norm::batch(BatchShape { batch: 3, height: 11, width: 13, channels: 5 }, fusion));
        norms.push(Norm {
            groups: 1,
            ..Norm::group(BatchShape { batch: 2, height: 17, width: 16, channels: 3 }, NormScope::Plane, fusion)
        });
    }
    norms
}

/// Inputs of a normalisation in both precisions.
struct Case {
    norm: Norm,
    x: Vec<f32>,
    scale: Vec<f32>,
    offset: Vec<f32>,
    shortcut: Option<Vec<f32>>,
    given: Option<Moments>,
}

impl Case {
    fn new(norm: Norm, shortcut: bool, given: bool) -> Self {
        let (count, channels) = (norm.shape.len(), norm.shape.channels);
        let x = numbers(count, 1);
        let given = given.then(|| {
            let moments = moments(&norm, &before(&norm, &double(&x)));
            let mean = moments.0.iter().map(|mean| *mean as f32 + 0.1).collect();
            Moments { mean, variance: moments.1.iter().map(|variance| *variance as f32 * 1.5 + 0.1).collect() }
        });
        let shortcut = shortcut.then(|| numbers(count, 2));
        Self { norm, x, scale: numbers(channels, 3), offset: numbers(channels, 4), shortcut, given }
    }

    fn affine(&self) -> Affine<'_> {
        Affine { scale: &self.scale, offset: &self.offset }
    }

    fn exact(&self) -> Inputs {
        Inputs {
            x: double(&self.x),
            scale: double(&self.scale),
            offset: double(&self.offset),
            shortcut: self.shortcut.as_deref().map(double),
            moments: self.given.as_ref().map(|given| (double(&given.mean), double(&given.variance))),
        }
    }

    fn forward(&self, set: InstructionSet) -> (Vec<f32>, Moments) {
        let mut y = vec![f32::NAN; self.x.len()];
        let shortcut = self.shortcut.as_deref();
        match &self.given {
            Some(given) => {
                self.norm.apply(set, (&self.x, shortcut), self.affine(), given, &mut y, &mut NormScratch::new());
                (y, given.clone())
            }
            None => {
                let moments = self.norm.forward(set, &self.x, self.affine(), shortcut, &mut y);
                (y, moments)
            }
        }
    }

    fn name(&self, set: InstructionSet) -> String {
        format!("{} {:?} shortcut {} given {}", set.name(), self.norm, self.shortcut.is_some(), self.given.is_some())
    }
}

/// All of these with and without shortcuts and given statistics.
fn cases() -> impl Iterator<Item = Case> {
    let kinds = [(true, false), (false, true)];
    norms().into_iter().flat_map(move |norm| kinds.map(|(shortcut, given)| Case::new(norm, shortcut, given)))
}

#[test]
fn normalisations_agree_with_their_definition() {
    for case in cases() {
        let expected = normalize(&case.norm, &case.exact());
        let (mean, variance) = moments(&case.norm, &before(&case.norm, &double(&case.x)));
        for set in InstructionSet::available() {
            let (y, moments) = case.forward(set);
            // Groups of two numbers can be nearly equal, which magnifies their rounding.
            assert_close(&y, &expected, 2e-5, &case.name(set));
            if case.given.is_none() {
                assert_close(&moments.mean, &mean, 1e-6, &case.name(set));
                assert_close(&moments.variance, &variance, 1e-6, &case.name(set));
            }
        }
    }
}

#[test]
fn gradients_of_normalisations_agree_with_differences() {
    for case in cases() {
        let dy = numbers(case.x.len(), 5);
        let expected = Expected::new(&case, &double(&dy));
        for set in InstructionSet::available() {
            expected.assert_are_found(&case, &dy, set);
        }
    }
}

#[test]
fn memory_that_has_served_other_normalisations_changes_nothing() {
    let (set, mut scratch, mut kept) = (InstructionSet::best(), NormScratch::new(), Moments::default());
    // From the widest on, so that there is more memory than is needed.
    let mut cases: Vec<Case> = cases().filter(|case| case.given.is_none()).collect();
    cases.sort_by_key(|case| std::cmp::Reverse(case.norm.shape.channels));
    for case in cases {
        let (fresh, moments) = case.forward(set);
        let (mut y, x) = (vec![f32::NAN; case.x.len()], (&case.x[..], case.shortcut.as_deref()));
        case.norm.forward_to(set, x, case.affine(), &mut y, &mut kept, &mut scratch);
        assert_eq!((&y, &kept), (&fresh, &moments), "{}", case.name(set));
        let (dy, saved) = (numbers(y.len(), 5), NormSaved { x: &case.x, y: &y, moments: &kept, given: false });
        let (mut dx, mut again) = (vec![f32::NAN; y.len()], vec![f32::NAN; y.len()]);
        let expected = case.norm.backward(set, saved, case.affine(), &dy, &mut dx, None);
        let [mut scale, mut offset] = [(); 2].map(|()| vec![f32::NAN; case.scale.len()]);
        let to = AffineTargets { scale: Some(&mut scale), offset: Some(&mut offset) };
        case.norm.backward_to(set, saved, case.affine(), &dy, (&mut again, None), to, &mut scratch);
        assert_eq!((again, scale, offset), (dx, expected.scale, expected.offset), "{}", case.name(set));
    }
}

/// Differences of the loss `y . dy` in everything that goes in.
struct Expected {
    x: Slopes,
    scale: Slopes,
    offset: Slopes,
    shortcut: Option<Slopes>,
}

impl Expected {
    fn new(case: &Case, dy: &[f64]) -> Self {
        let exact = case.exact();
        let with = |change: &dyn Fn(&mut Inputs)| {
            let mut inputs = exact.clone();
            change(&mut inputs);
            dot(&normalize(&case.norm, &inputs), dy)
        };
        Self {
            x: Slopes::new(|x| with(&|inputs| inputs.x = x.to_vec()), &exact.x),
            scale: Slopes::new(|x| with(&|inputs| inputs.scale = x.to_vec()), &exact.scale),
            offset: Slopes::new(|x| with(&|inputs| inputs.offset = x.to_vec()), &exact.offset),
            shortcut: exact.shortcut.as_ref().map(|x| Slopes::new(|x| with(&|inputs| inputs.shortcut = Some(x.to_vec())), x)),
        }
    }

    fn assert_are_found(&self, case: &Case, dy: &[f32], set: InstructionSet) {
        let (y, moments) = case.forward(set);
        let saved = NormSaved { x: &case.x, y: &y, moments: &moments, given: case.given.is_some() };
        let mut dx = vec![f32::NAN; case.x.len()];
        let mut d_shortcut = vec![f32::NAN; case.x.len()];
        let wanted = case.shortcut.as_ref().map(|_| &mut d_shortcut[..]);
        let affine = case.norm.backward(set, saved, case.affine(), dy, &mut dx, wanted);
        let (tolerance, name) = (2e-4, case.name(set));
        self.x.assert_are_of(&dx, tolerance, &format!("{name} x"));
        self.scale.assert_are_of(&affine.scale, tolerance, &format!("{name} scale"));
        self.offset.assert_are_of(&affine.offset, tolerance, &format!("{name} offset"));
        if let Some(shortcut) = &self.shortcut {
            shortcut.assert_are_of(&d_shortcut, tolerance, &format!("{name} shortcut"));
        }
    }
}

#[test]
fn a_large_mean_costs_no_digits_of_the_variance() {
    let shape = BatchShape { batch: 2, height: 14, width: 14, channels: 64 };
    let norm = Norm::group(shape, NormScope::Plane, Fusion::None);
    let mut case = Case::new(norm, false, false);
    case.x.iter_mut().for_each(|x| *x += 1000.0);
    let expected = normalize(&norm, &case.exact());
    for set in InstructionSet::available() {
        assert_close(&case.forward(set).0, &expected, 1e-4, set.name());
    }
}

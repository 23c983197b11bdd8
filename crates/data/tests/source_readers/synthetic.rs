use crate::assert_refused;
use crate::sound::assert_sound;
use fedeq_data::source::Source;
use fedeq_data::source::synthetic::{Classification, Optimum, Problem, Regression, RegressionData, Synthetic};
use fedeq_data::{Dataset, Samples, Seed};
use proptest::prelude::*;

fn rows(dataset: &Dataset) -> std::slice::Chunks<'_, f32> {
    match &dataset.samples {
        Samples::Vectors(vectors) => vectors.values.chunks(vectors.width),
        _ => panic!("synthetic samples are numbers"),
    }
}

/// Mean over clients of the mean squared error, straight from the definition.
fn loss(problem: &Regression, data: &RegressionData, theta: &[f64], w: &[Vec<f64>]) -> f64 {
    let rows = data.features.values.chunks(data.features.width);
    let squares = rows.zip(&data.targets).zip(&data.owners.of).map(|((row, &target), &owner)| {
        let parameters = theta.iter().chain(&w[owner as usize]);
        let prediction: f64 = row.iter().zip(parameters).map(|(&x, parameter)| f64::from(x) * parameter).sum();
        (prediction - f64::from(target)).powi(2)
    });
    squares.sum::<f64>() / (problem.clients * problem.samples) as f64
}

/// The largest central difference of the loss at the optimum, which a quadratic makes exact.
fn largest_slope(problem: &Regression, data: &RegressionData, optimum: &Optimum) -> f64 {
    let step = 1e-3;
    let slope = |change: &dyn Fn(&mut Optimum, f64)| {
        let at = |step| {
            let mut moved = optimum.clone();
            change(&mut moved, step);
            loss(problem, data, &moved.theta, &moved.w)
        };
        ((at(step) - at(-step)) / (2.0 * step)).abs()
    };
    let shared = (0..problem.shared).map(|i| slope(&|optimum, step| optimum.theta[i] += step));
    let all = (0..problem.clients).flat_map(|client| (0..problem.personal).map(move |i| (client, i)));
    let personal = all.map(|(client, i)| slope(&|optimum, step| optimum.w[client][i] += step));
    shared.chain(personal).fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn the_loss_is_flat_at_the_optimum(seed in any::<u64>(), shared in 0usize..5, personal in 1usize..4, noise in 0f32..1.0) {
        let problem = Regression { clients: 4, samples: 20, shared, personal, noise };
        let (data, optimum) = problem.generate(Seed::new(seed)).unwrap();
        prop_assert!(data.features.values.iter().chain(&data.targets).all(|number| number.is_finite()));
        prop_assert!((loss(&problem, &data, &optimum.theta, &optimum.w) - optimum.loss).abs() < 1e-9);
        prop_assert!(largest_slope(&problem, &data, &optimum) < 1e-9);
    }
}

#[test]
fn without_noise_the_optimum_explains_every_target() {
    let problem = Regression { noise: 0.0, ..Regression::default() };
    let (data, optimum) = problem.generate(Seed::new(3)).unwrap();
    assert!(loss(&problem, &data, &optimum.theta, &optimum.w) < 1e-12);
}

#[test]
fn the_largest_feature_tells_the_class_by_the_margin() {
    let problem = Classification { margin: 0.5, ..Classification::default() };
    let (dataset, names) = problem.generate(Seed::new(5)).unwrap();
    assert_sound(&dataset);
    let owners = dataset.owners.clone().unwrap().of;
    for ((row, &class), owner) in rows(&dataset).zip(dataset.classes().unwrap()).zip(owners) {
        let kind = names[owner as usize].iter().position(|&name| name == class).unwrap();
        let others = row[..5].iter().enumerate().filter(|(at, _)| *at != kind).map(|(_, &value)| value);
        assert!(row[kind] - others.fold(f32::MIN, f32::max) > 0.499);
    }
}

#[test]
fn names_differ_among_clients_only_where_they_are_personal() {
    let names = |personal| Classification { personal, ..Classification::default() }.generate(Seed::new(1)).unwrap().1;
    assert!(names(false).iter().all(|order| order == &[0, 1, 2, 3, 4]));
    assert!(names(true).iter().any(|order| order != &[0, 1, 2, 3, 4]));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    let load = |seed| {
        let problem = Problem::Classification(Classification::default());
        Source::Synthetic(Synthetic { seed, problem }).load("".as_ref()).unwrap()
    };
    assert_eq!(load(1), load(1));
    assert_ne!(load(1), load(2));
    let generate = |seed| Regression::default().generate(Seed::new(seed)).unwrap();
    assert_eq!(generate(1), generate(1));
    assert_ne!(generate(1), generate(2));
}

#[test]
fn impossible_sizes_are_refused() {
    let regression = |change: fn(&mut Regression)| {
        let mut problem = Regression::default();
        change(&mut problem);
        problem.generate(Seed::new(0))
    };
    assert_refused(regression(|problem| problem.clients = 0), &["`0` clients"]);
    assert_refused(regression(|problem| problem.samples = usize::MAX), &["cannot be generated"]);
    assert_refused(regression(|problem| problem.shared = usize::MAX), &["cannot be generated"]);
    assert_refused(regression(|problem| problem.samples = 8), &["`8` samples", "`8` parameters"]);
    assert_refused(regression(|problem| problem.noise = f32::NAN), &["`noise = NaN`"]);
    let crowded = Classification { classes: 11, ..Classification::default() };
    assert_refused(crowded.generate(Seed::new(0)), &["`11` classes", "`10` numbers"]);
}

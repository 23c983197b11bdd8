//! Forward passes against an independent implementation in JAX, `golden/generate.py`.
use std::collections::BTreeMap;

use burn::tensor::Device;
use fedeq_models::{Context, Mode, ModelConfig, Statistics, Task};
use serde::Deserialize;

mod common;

#[derive(Deserialize)]
struct Case {
    title: String,
    config: ModelConfig,
    task: Task,
    mode: String,
    gain: f64,
    outputs: BTreeMap<String, Vec<f64>>,
}

/// The entries that the golden numbers are compared with, by the name they have there.
fn results(case: &Case, double: bool) -> BTreeMap<String, Vec<f64>> {
    let device = Device::default();
    let network = case.config.build(&case.task, &device, 0).expect("a fitting task");
    let mut network = common::filled(network, case.gain);
    let mut start = common::filled_statistics(&network);
    let mut input = common::batch(&case.task, &device);
    if double {
        (network, start, input) = (common::doubled(network), common::doubled_statistics(&start), common::doubled_input(input));
    }
    let mut context = Context::evaluate(start);
    if case.mode == "train" {
        context.mode = Mode::Train;
    }
    let output = network.forward(&input, &mut context).expect("a fitting input");
    let mut results = statistics(&context.statistics);
    results.insert("logits".into(), common::host(&output.logits));
    results.insert("embedding".into(), common::host(&output.embedding));
    if let Some(equilibrium) = output.equilibrium {
        results.insert("state".into(), common::host(&equilibrium.state));
    }
    results
}

fn statistics(statistics: &Statistics) -> BTreeMap<String, Vec<f64>> {
    let named = statistics.iter().flat_map(|(path, moments)| {
        [(format!("{path}.mean"), common::host(&moments.mean)), (format!("{path}.variance"), common::host(&moments.variance))]
    });
    named.collect()
}

/// The largest difference, relative to the entry or to the root mean square of all entries, whichever is larger.
fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = (expected.iter().map(|x| x * x).sum::<f64>() / expected.len() as f64).sqrt();
    found.iter().zip(expected).map(|(f, e)| (f - e).abs() / e.abs().max(scale)).fold(0.0, f64::max)
}

/// How far single precision may be off. Batch normalisation over three samples enlarges rounding: by burn's own convolutions the
/// worst entry (the embedding of a ResNet-14) is off by 6e-5, by Winograd's, whose rounding is twice as large, by 1.2e-4.
const SINGLE_PRECISION: f64 = 2e-4;

/// Compares all cases of a kind, in single precision and in double precision within what the golden digits allow.
///
/// Cases solved until nothing changes are compared in double precision only: single precision cannot resolve a fixed point
/// better than its rounding divided by one minus the rate of contraction.
fn check(kind: &str) {
    let cases: Vec<Case> = serde_json::from_str(include_str!("golden/golden.json")).expect("the generator writes this format");
    let cases: Vec<&Case> = cases.iter().filter(|case| case.config.name() == kind).collect();
    assert!(!cases.is_empty(), "no golden numbers for {kind}");
    for case in cases {
        compare(case, true, 1e-5);
        if !case.title.ends_with("converged") {
            compare(case, false, SINGLE_PRECISION);
        }
    }
}

fn compare(case: &Case, double: bool, tolerance: f64) {
    let found = results(case, double);
    for (name, expected) in &case.outputs {
        let error = relative_error(&found[name], expected);
        assert!(error < tolerance, "{}: `{name}` differs by {error:.1e}", case.title);
    }
}

#[test]
fn deq_resnet_xs_agrees_with_jax() {
    check("deq-resnet-xs");
}

#[test]
fn deq_mlp_agrees_with_jax() {
    check("deq-mlp");
}

#[test]
fn resnet_xs_agrees_with_jax() {
    check("resnet-xs");
}

#[test]
fn resnet_14_agrees_with_jax_in_both_families() {
    check("resnet-14");
}

#[test]
fn transformer_4_agrees_with_jax() {
    check("transformer-4");
}

#[test]
fn deq_transformer_agrees_with_jax() {
    check("deq-transformer");
}

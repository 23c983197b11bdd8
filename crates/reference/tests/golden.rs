//! Forward passes against an independent implementation in JAX, `golden/generate.py`.
use std::collections::BTreeMap;

use fedeq_models::Mode;
use fedeq_models::{ModelConfig, Task};
use fedeq_reference::{FloatPrecision, Pass, Reference};
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

/// What the golden numbers are compared with, by the name it has there.
fn results(case: &Case, precision: FloatPrecision) -> BTreeMap<String, Vec<f64>> {
    let graph = case.config.graph(&case.task).expect("a fitting task");
    let mode = if case.mode == "train" { Mode::Train } else { Mode::Evaluate };
    let pass = Pass { mode, ..Pass::evaluate() };
    let (values, statistics) = (common::filled(&graph, case.gain), common::filled_statistics(&graph));
    let output = Reference::new(&graph, precision).forward(&values, &statistics, &common::batch(&case.task), &pass);
    let mut results = output.statistics;
    results.insert("logits".into(), output.logits);
    results.insert("embedding".into(), output.embedding);
    results.extend(output.state.map(|state| ("state".into(), state)));
    results
}

/// How far single precision may be off. Batch normalisation over three samples enlarges rounding: the worst entry (the embedding of a
/// ResNet-14) is off by 6e-5.
const SINGLE_PRECISION: f64 = 1e-4;

/// Compares all cases of a kind, in single precision and in double precision within what the golden digits allow.
///
/// Cases solved until nothing changes are compared in double precision only: single precision cannot resolve a fixed point
/// better than its rounding divided by one minus the rate of contraction.
fn check(kind: &str) {
    let cases: Vec<Case> = serde_json::from_str(include_str!("golden/golden.json")).expect("the generator writes this format");
    let cases: Vec<&Case> = cases.iter().filter(|case| case.config.name() == kind).collect();
    assert!(!cases.is_empty(), "no golden numbers for {kind}");
    for case in cases {
        compare(case, FloatPrecision::Double, 1e-5);
        if !case.title.ends_with("converged") {
            compare(case, FloatPrecision::Single, SINGLE_PRECISION);
        }
    }
}

fn compare(case: &Case, precision: FloatPrecision, tolerance: f64) {
    let found = results(case, precision);
    for (name, expected) in &case.outputs {
        let error = common::relative_error(&found[name], expected);
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

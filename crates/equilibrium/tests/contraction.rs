//! Diagnostics and contractive parametrisations, against closed forms.
mod common;

use burn::module::{Module, Param};
use burn::tensor::{DType, Tensor};
use common::{Tanh, host, relative_error, tensor, uniform};
use fedeq_equilibrium::{Cell, contract, diagnose};
use proptest::prelude::*;

/// `z A`, whose Jacobian is known.
#[derive(Module, Debug)]
struct Linear {
    a: Param<Tensor<2>>,
}

impl Cell<2> for Linear {
    type Input = ();

    fn step(&self, z: Tensor<2>, _: &()) -> Tensor<2> {
        z.matmul(self.a.val())
    }
}

fn linear(values: Vec<f64>, size: usize) -> Linear {
    Linear { a: Param::from_tensor(tensor(values, [size, size], DType::F64)) }
}

#[test]
fn the_spectral_radius_of_real_and_of_rotating_maps_is_found() {
    let probe = tensor(uniform(2 * 3, 7), [2, 3], DType::F64);
    let triangular = linear(vec![0.9, 0.3, -0.2, 0.0, -0.5, 0.4, 0.0, 0.0, 0.1], 3);
    for radius in diagnose::spectral_radius(&triangular, &(), probe.clone(), probe.clone(), 100) {
        assert!((radius - 0.9).abs() < 1e-6, "{radius}");
    }
    // A rotation by one radian, stretched unevenly: a complex pair of modulus 0.7.
    let (s, c) = 1f64.sin_cos();
    let rotation = linear(vec![0.7 * c, 1.4 * s, 0.0, -0.35 * s, 0.7 * c, 0.0, 0.0, 0.0, 0.2], 3);
    for radius in diagnose::spectral_radius(&rotation, &(), probe.clone(), probe, 400) {
        assert!((radius - 0.7).abs() < 0.01, "{radius}");
    }
}

#[test]
fn a_map_that_ignores_its_state_has_spectral_radius_zero() {
    let zero = linear(vec![0.0; 4], 2);
    let probe = tensor(vec![1.0, 2.0], [1, 2], DType::F64);
    assert_eq!(diagnose::spectral_radius(&zero, &(), probe.clone(), probe, 10), [0.0]);
}

#[test]
fn hutchinson_finds_the_frobenius_norm() {
    let values = uniform(36, 3);
    let exact: f64 = values.iter().map(|value| value * value).sum();
    let cell = linear(values, 6);
    let z = tensor(uniform(12, 4), [2, 6], DType::F64);
    // Orthogonal probes of length sqrt(n) make the estimate exact: the unit vectors, scaled.
    let unit = |k: usize| tensor((0..12).map(|at| if at % 6 == k { 6f64.sqrt() } else { 0.0 }).collect(), [2, 6], DType::F64);
    let probes: Vec<Tensor<2>> = (0..6).map(unit).collect();
    for found in diagnose::jacobian_frobenius_squared(&cell, &(), z.clone(), &probes) {
        assert!((found - exact).abs() < 1e-9 * exact);
    }
    let random: Vec<Tensor<2>> = (0..400).map(|_| diagnose::normal_probe(&z)).collect();
    for found in diagnose::jacobian_frobenius_squared(&cell, &(), z.clone(), &random) {
        assert!((found - exact).abs() < 0.2 * exact, "{found} {exact}");
    }
}

#[test]
fn training_on_the_jacobian_penalty_makes_a_cell_contract() {
    let x = tensor(uniform(8 * 6, 1), [8, 6], DType::F32);
    let mut weight = Tanh::random(6, 6.0, 2, DType::F32).weight.val();
    let radius = |weight: &Tensor<2>| {
        let cell = Tanh::from_weight(weight.clone());
        let probe = tensor(uniform(8 * 6, 3), [8, 6], DType::F32);
        diagnose::spectral_radius(&cell, &x, x.zeros_like(), probe, 60).into_iter().fold(0.0, f64::max)
    };
    let before = radius(&weight);
    for round in 0..40 {
        let leaf = weight.clone().autodiff().require_grad();
        let cell = Tanh { weight: Param::from_tensor(leaf.clone()) };
        let probe = tensor(uniform(8 * 6, 100 + round), [8, 6], DType::F32);
        let gradients = diagnose::jacobian_penalty(&cell, &x, x.zeros_like(), probe).backward();
        let gradient = cell.weight.val().grad(&gradients).expect("the penalty reaches the weight");
        weight = weight - gradient.mul_scalar(0.5);
    }
    assert!(before > 1.5 && radius(&weight) < 0.75, "{before} -> {}", radius(&weight));
}

fn rows_of(values: &[f64], width: usize) -> Vec<f64> {
    values.chunks(width).map(|row| row.iter().map(|value| value.abs()).sum()).collect()
}

proptest! {
    #[test]
    fn the_linf_projection_is_the_nearest_point_of_the_ball(values in prop::collection::vec(-3.0..3.0f64, 12), radius in 0.1..2.0f64) {
        let b = tensor(values.clone(), [3, 4], DType::F64);
        let projected = host(contract::project_onto_linf_ball(b, radius));
        for (row, (before, after)) in values.chunks(4).zip(projected.chunks(4)).enumerate() {
            let size = rows_of(before, 4)[0];
            if size <= radius {
                prop_assert_eq!(before, after, "row {} was inside and is left alone", row);
                continue;
            }
            prop_assert!((rows_of(after, 4)[0] - radius).abs() < 1e-9);
            // Nearest point: no vertex of the ball makes an acute angle with what was removed.
            let removed: Vec<f64> = before.iter().zip(after).map(|(b, a)| b - a).collect();
            let along: f64 = removed.iter().zip(after).map(|(r, a)| r * a).sum();
            let steepest = removed.iter().fold(0f64, |most, r| most.max(r.abs())) * radius;
            prop_assert!(steepest <= along + 1e-9, "row {}", row);
        }
    }

    #[test]
    fn the_sphere_projection_gives_every_row_the_same_norm(values in prop::collection::vec(-3.0..3.0f64, 12)) {
        let b = tensor(values, [3, 4], DType::F64);
        for size in rows_of(&host(contract::project_rows_onto_l1_sphere(b, 1.0)), 4) {
            prop_assert!((size - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn weight_normalisation_bounds_the_linf_norm(values in prop::collection::vec(-3.0..3.0f64, 12), bound in 0.1..2.0f64) {
        let b = tensor(values, [3, 4], DType::F64);
        prop_assert!(rows_of(&host(contract::weight_normalise(b, bound)), 4).iter().all(|&size| size <= bound + 1e-12));
    }
}

#[test]
fn a_row_of_zeros_is_projected_without_harm() {
    let zeros = tensor(vec![0.0; 4], [1, 4], DType::F32);
    assert_eq!(host(contract::project_onto_linf_ball(zeros.clone(), 0.9)), [0.0; 4]);
    assert_eq!(rows_of(&host(contract::project_rows_onto_l1_sphere(zeros, 1.0)), 4), [1.0]);
}

#[test]
fn spectral_normalisation_bounds_the_largest_singular_value_and_leaves_small_matrices_alone() {
    let b = tensor(uniform(5 * 7, 3), [5, 7], DType::F64);
    let largest = |b: &Tensor<2>| {
        let gram = b.clone().matmul(b.clone().transpose());
        let cell = linear(host(gram), 5);
        let probe = tensor(uniform(5, 4), [1, 5], DType::F64);
        diagnose::spectral_radius(&cell, &(), probe.clone(), probe, 300)[0].sqrt()
    };
    let bounded = contract::spectral_normalise(b.clone(), 0.9, 200);
    assert!((largest(&bounded) - 0.9).abs() < 1e-6);
    let small = b.mul_scalar(0.01);
    assert!(relative_error(&host(contract::spectral_normalise(small.clone(), 0.9, 50)), &host(small)) < 1e-12);
}

#[test]
fn spectral_normalisation_passes_the_right_gradient() {
    let values = uniform(9, 3).into_iter().map(|value| 2.0 * value).collect::<Vec<_>>();
    let loss = |values: Vec<f64>| contract::spectral_normalise(tensor(values, [3, 3], DType::F64), 0.9, 200).exp().sum();
    let leaf = tensor::<2>(values.clone(), [3, 3], DType::F64).autodiff().require_grad();
    let gradients = contract::spectral_normalise(leaf.clone(), 0.9, 200).exp().sum().backward();
    let found = host(leaf.grad(&gradients).expect("takes part"));
    let moved = |index: usize, shift: f64| {
        let mut values = values.clone();
        values[index] += shift;
        loss(values).into_scalar::<f64>()
    };
    let expected: Vec<f64> = (0..9).map(|index| (moved(index, 1e-5) - moved(index, -1e-5)) / 2e-5).collect();
    assert!(relative_error(&found, &expected) < 1e-6);
}

//! [`solve`]: costs that explain what was measured, none below zero.

/// One equation: counts, and what the counts times the costs are to be.
pub struct Equation<const N: usize> {
    pub counts: [f64; N],
    pub is: f64,
}

/// The unknowns, each at least 0, with the least sum of squared relative errors. Where the equations leave one open, it is 0.
///
/// It solves the equations for each choice of unknowns that are not 0, of which there are few, and takes the best.
pub fn solve<const N: usize>(equations: &[Equation<N>]) -> [f64; N] {
    let mut best = (f64::INFINITY, [0.0; N]);
    for chosen in 1_u32..1 << N {
        let chosen: Vec<usize> = (0..N).filter(|unknown| chosen >> unknown & 1 == 1).collect();
        let Some(solved) = solve_for(equations, &chosen) else { continue };
        let error = |equation: &Equation<N>| {
            let explained: f64 = equation.counts.iter().zip(&solved).map(|(count, cost)| count * cost).sum();
            (explained / equation.is - 1.0).powi(2)
        };
        let error: f64 = equations.iter().map(error).sum();
        // Of choices that are as good, the first.
        if solved.iter().all(|cost| *cost >= 0.0) && error < best.0 - 1e-12 {
            best = (error, solved);
        }
    }
    best.1
}

/// The normal equations of these unknowns, by Gauss and Jordan; none if they leave one open.
fn solve_for<const N: usize>(equations: &[Equation<N>], chosen: &[usize]) -> Option<[f64; N]> {
    let n = chosen.len();
    let mut rows = vec![vec![0.0; n + 1]; n];
    for equation in equations {
        let weight = equation.is.powi(-2);
        for (row, unknown) in rows.iter_mut().zip(chosen) {
            for (cell, other) in row.iter_mut().zip(chosen) {
                *cell += weight * equation.counts[*unknown] * equation.counts[*other];
            }
            row[n] += weight * equation.counts[*unknown] * equation.is;
        }
    }
    for at in 0..n {
        let pivot = (at..n).max_by(|one, other| rows[*one][at].abs().total_cmp(&rows[*other][at].abs()))?;
        rows.swap(at, pivot);
        if rows[at][at].abs() < 1e-12 {
            return None;
        }
        let pivot = rows[at].clone();
        for (number, row) in rows.iter_mut().enumerate() {
            if number != at {
                let factor = row[at] / pivot[at];
                row.iter_mut().zip(&pivot).for_each(|(cell, of_pivot)| *cell -= factor * of_pivot);
            }
        }
    }
    let mut solved = [0.0; N];
    for (at, unknown) in chosen.iter().enumerate() {
        solved[*unknown] = rows[at][n] / rows[at][at];
    }
    Some(solved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_found_again_and_none_is_below_zero() {
        let costs = [2.0, 30.0, 8.0];
        let equation = |counts: [f64; 3]| {
            let is = counts.iter().zip(costs).map(|(count, cost)| count * cost).sum();
            Equation { counts, is }
        };
        let all: Vec<Equation<3>> =
            [[1.0, 0.0, 0.0], [0.8, 0.2, 0.9], [0.5, 0.5, 0.5], [0.0, 1.0, 3.0]].map(equation).into();
        for (found, cost) in solve(&all).iter().zip(costs) {
            assert!((found - cost).abs() < 1e-6, "{found} for {cost}");
        }
        // What nothing tells of costs nothing; and what would have to cost less than nothing.
        let solved = solve(&[Equation { counts: [1.0, 0.0], is: 3.0 }]);
        assert!((solved[0] - 3.0).abs() < 1e-9 && solved[1] == 0.0, "{solved:?}");
        let falls = [Equation { counts: [1.0, 0.0], is: 3.0 }, Equation { counts: [1.0, 1.0], is: 2.0 }];
        let solved = solve(&falls);
        assert!(solved[0] > 2.0 && solved[1] == 0.0, "{solved:?}");
    }
}

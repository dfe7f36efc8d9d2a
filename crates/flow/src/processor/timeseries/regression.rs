//! Linear regression of one variable on others: coefficients by least squares, without those that are not significant.

use statrs::function::beta::checked_beta_reg;

/// Sums over observations of `[y, x1, …]`: their number, means, and products of deviations from the means.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moments {
    /// Number of observations.
    pub(super) count: u64,
    /// Mean of each variable.
    pub(super) means: Vec<f64>,
    /// Sums of products of deviations, row by row.
    pub(super) products: Vec<f64>,
}

impl Moments {
    /// Creates the sums over no observations of `variables` variables.
    pub(super) fn new(variables: usize) -> Self {
        Self { count: 0, means: vec![0.0; variables], products: vec![0.0; variables * variables] }
    }

    /// Adds an observation (Welford's algorithm).
    pub(super) fn add(&mut self, values: &[f64]) {
        self.count += 1;
        let before: Vec<f64> = values.iter().zip(&self.means).map(|(v, mean)| v - mean).collect();
        for (mean, deviation) in self.means.iter_mut().zip(&before) {
            *mean += deviation / self.count as f64;
        }
        let after: Vec<f64> = values.iter().zip(&self.means).map(|(v, mean)| v - mean).collect();
        let pairs = before.iter().flat_map(|b| after.iter().map(move |a| b * a));
        self.products.iter_mut().zip(pairs).for_each(|(sum, product)| *sum += product);
    }

    /// Computes the sums over all of these observations, first the means and then the deviations from them.
    pub(super) fn of<'a>(variables: usize, all: impl Iterator<Item = &'a [f64]> + Clone) -> Self {
        let mut moments = Self::new(variables);
        for values in all.clone() {
            moments.count += 1;
            moments.means.iter_mut().zip(values).for_each(|(sum, v)| *sum += v);
        }
        moments.means.iter_mut().for_each(|sum| *sum /= moments.count as f64);
        for values in all {
            let deviations: Vec<f64> = values.iter().zip(&moments.means).map(|(v, mean)| v - mean).collect();
            let pairs = deviations.iter().flat_map(|a| deviations.iter().map(move |b| a * b));
            moments.products.iter_mut().zip(pairs).for_each(|(sum, product)| *sum += product);
        }
        moments
    }

    fn product(&self, row: usize, column: usize) -> f64 {
        self.products[row * self.means.len() + column]
    }

    /// Returns the standard error and the coefficients β0, β1, …. A coefficient is 0 if it differs from 0 with less
    /// than `confidence`. All are 0 as long as the observations do not determine them.
    pub(super) fn fit(&self, confidence: f64) -> Vec<f64> {
        let variables = self.means.len();
        let undetermined = vec![0.0; variables + 1];
        let freedom = self.count as f64 - variables as f64;
        if freedom < 1.0 {
            return undetermined;
        }
        let inner = variables - 1;
        let square = (1..variables).map(|i| (1..variables).map(|j| self.product(i, j)).collect());
        let Some(inverse) = inverse(square.collect()) else { return undetermined };
        let slope = |row: &Vec<f64>| (0..inner).map(|j| row[j] * self.product(0, j + 1)).sum();
        let slopes: Vec<f64> = inverse.iter().map(slope).collect();
        let at_means: f64 = slopes.iter().zip(&self.means[1..]).map(|(slope, mean)| slope * mean).sum();
        let explained: f64 = slopes.iter().enumerate().map(|(j, slope)| slope * self.product(0, j + 1)).sum();
        let variance = (self.product(0, 0) - explained).max(0.0) / freedom;
        let spread = (0..inner).flat_map(|i| (0..inner).map(move |j| (i, j)));
        let spread: f64 = spread.map(|(i, j)| self.means[i + 1] * inverse[i][j] * self.means[j + 1]).sum();
        let significant = |value: f64, scale: f64| {
            let error = (variance * scale).sqrt();
            if is_significant(value, error, freedom, confidence) { value } else { 0.0 }
        };
        let mut result =
            vec![variance.sqrt(), significant(self.means[0] - at_means, 1.0 / self.count as f64 + spread)];
        result.extend(slopes.iter().enumerate().map(|(j, slope)| significant(*slope, inverse[j][j])));
        result
    }
}

/// Returns whether a coefficient differs from 0 by Student's t-test of two sides.
fn is_significant(value: f64, error: f64, freedom: f64, confidence: f64) -> bool {
    if error == 0.0 {
        return true;
    }
    let t = value / error;
    let probability = checked_beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t));
    probability.is_ok_and(|p| p <= 1.0 - confidence)
}

/// Inverts a symmetric matrix by Gauss-Jordan elimination; `None` if it is singular.
fn inverse(mut rows: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let size = rows.len();
    let largest = rows.iter().flatten().fold(0.0_f64, |most, x| most.max(x.abs()));
    for (i, row) in rows.iter_mut().enumerate() {
        row.extend((0..size).map(|j| if i == j { 1.0 } else { 0.0 }));
    }
    for column in 0..size {
        let pivot =
            (column..size).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        rows.swap(column, pivot);
        let divisor = rows[column][column];
        if !divisor.is_finite() || divisor.abs() <= largest * 1e-14 {
            return None;
        }
        rows[column].iter_mut().for_each(|x| *x /= divisor);
        let eliminated = rows[column].clone();
        for (i, row) in rows.iter_mut().enumerate() {
            let factor = row[column];
            if i != column && factor != 0.0 {
                row.iter_mut().zip(&eliminated).for_each(|(x, by)| *x -= factor * by);
            }
        }
    }
    Some(rows.into_iter().map(|row| row[size..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plane_through_points_on_it_is_found() {
        let points: Vec<Vec<f64>> = [(0.0, 1.0), (1.0, 0.0), (2.0, 5.0), (3.0, 1.0), (4.0, 9.0)]
            .iter()
            .map(|(a, b)| vec![3.0 + 2.0 * a - 0.5 * b, *a, *b])
            .collect();
        let mut added = Moments::new(3);
        points.iter().for_each(|p| added.add(p));
        let at_once = Moments::of(3, points.iter().map(Vec::as_slice));
        for found in [added.fit(0.95), at_once.fit(0.95)] {
            let expected = [0.0, 3.0, 2.0, -0.5];
            let close = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6);
            assert!(close, "{found:?}");
        }
    }

    #[test]
    fn points_that_determine_no_line_give_zeros() {
        let mut moments = Moments::new(2);
        for y in [1.0, 2.0, 5.0, 7.0] {
            assert_eq!(moments.fit(0.95), [0.0, 0.0, 0.0]);
            moments.add(&[y, 4.0]);
        }
        assert_eq!(moments.fit(0.95), [0.0, 0.0, 0.0]);
    }

    #[test]
    fn coefficients_that_may_be_chance_are_left_out() {
        // The residuals are -0.4, 0.6, 0.6, -1.4 and 0.6, so the standard error is √(3.2 / 3). With three degrees of
        // freedom the intercept has t = 0.37 (p = 0.74), the slope t = 3.06 (p = 0.055).
        let points = [[1.0, 1.0], [3.0, 2.0], [4.0, 3.0], [3.0, 4.0], [6.0, 5.0]];
        let moments = Moments::of(2, points.iter().map(|p| p.as_slice()));
        let rounded = |confidence| -> Vec<i64> {
            moments.fit(confidence).iter().map(|x| (x * 10_000.0).round() as i64).collect()
        };
        assert_eq!(rounded(0.0), [10328, 4000, 10000]);
        assert_eq!(rounded(0.94), [10328, 0, 10000]);
        assert_eq!(rounded(0.95), [10328, 0, 0]);
        assert_eq!(rounded(0.99), [10328, 0, 0]);
    }
}

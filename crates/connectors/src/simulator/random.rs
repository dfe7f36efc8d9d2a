//! Random numbers that depend on the seed, the event and the place in the expressions only, so that a source can go on
//! at any event.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Source of random numbers of one event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Random {
    pub seed: u64,
    pub event: u64,
}

impl Random {
    /// Returns 64 random bits for a place. `part` tells several numbers of the place apart.
    pub(super) fn bits(self, place: usize, part: u64) -> u64 {
        let mut bytes = [0; 24];
        for (chunk, number) in bytes.chunks_exact_mut(8).zip([self.event, place as u64, part]) {
            chunk.copy_from_slice(&number.to_le_bytes());
        }
        xxh3_64_with_seed(&bytes, self.seed)
    }

    /// Returns a number from 0 up to 1.
    pub(super) fn unit(self, place: usize, part: u64) -> f64 {
        // 53 bits are what a float holds exactly
        (self.bits(place, part) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number with the normal distribution of mean 0 and deviation 1, by the method of Box and Muller.
    pub(super) fn normal(self, place: usize) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit(place, 0)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit(place, 1)).cos()
    }

    /// Returns an integer of a range.
    pub(super) fn integer(self, place: usize, min: i64, max: i64) -> i64 {
        let count = (i128::from(max) - i128::from(min) + 1).max(1) as u128;
        // the high half of a product is even enough for a simulation
        let offset = (u128::from(self.bits(place, 0)) * count) >> 64;
        (i128::from(min) + offset as i128) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distributed() {
        let numbers = (0..20_000).map(|event| Random { seed: 7, event });
        let (mut sum, mut squares, mut dice) = (0.0, 0.0, [0; 6]);
        for random in numbers {
            let normal = random.normal(1);
            sum += normal;
            squares += normal * normal;
            dice[(random.integer(2, -3, 2) + 3) as usize] += 1;
            assert!((0.0..1.0).contains(&random.unit(3, 0)));
            random.integer(4, i64::MIN, i64::MAX);
        }
        assert!((sum / 20_000.0_f64).abs() < 0.03 && (squares / 20_000.0 - 1.0).abs() < 0.05);
        assert!(dice.iter().all(|count| (3000..3700).contains(count)), "{dice:?}");
        let random = Random { seed: 7, event: 1 };
        assert_eq!(random.bits(1, 0), random.bits(1, 0));
        assert_ne!(random.bits(1, 0), Random { seed: 8, ..random }.bits(1, 0));
        assert_eq!(random.integer(0, 5, 5), 5);
    }
}

//! One truck: where it is, what it carries, how it drives.

use tidemill_bench_cep::random::Random;

/// Fleets that trucks belong to.
pub const FLEETS: [&str; 4] = ["East", "West", "North", "South"];
/// Names of drivers.
pub const DRIVERS: [&str; 6] = ["Derek", "Rodney", "Albert", "Andy", "Seth", "Trish"];
/// Versions of the devices in trucks.
pub const DEVICE_VERSIONS: [&str; 4] = ["v1.0", "v1.5", "v2.0", "v2.3"];
/// Models with their load capacity, fuel capacity and nominal fuel consumption.
pub const MODELS: [(&str, f64, f64, f64); 3] =
    [("F-150", 2000.0, 200.0, 15.0), ("G-2000", 5000.0, 300.0, 19.0), ("H-2", 1500.0, 150.0, 12.0)];

/// Ticks of a rest: half an hour.
const REST_TICKS: u32 = 180;
/// Rests begin once in this many ticks of a truck: about eight a day.
const REST_EVERY: u64 = 1080;

/// What does not change about a truck.
#[derive(Debug, Clone)]
pub struct Tags {
    /// Its fleet.
    pub fleet: &'static str,
    /// Who drives it.
    pub driver: &'static str,
    /// Its model, with the figures of [`MODELS`].
    pub model: (&'static str, f64, f64, f64),
    /// Version of its device.
    pub device_version: &'static str,
}

/// A truck with its random numbers.
#[derive(Debug)]
pub struct Truck {
    random: Random,
    /// What does not change.
    pub tags: Tags,
    latitude: f64,
    longitude: f64,
    elevation: f64,
    velocity: f64,
    heading: f64,
    grade: f64,
    fuel_consumption: f64,
    fuel_state: f64,
    current_load: u64,
    status: i64,
    rest: u32,
}

impl Truck {
    /// Creates truck `number` of the data set with `seed`.
    pub fn new(seed: u64, number: u64) -> Self {
        let mut random = Random::new(tidemill_bench_cep::random::at(seed, number));
        let tags = Tags {
            fleet: pick(&mut random, &FLEETS),
            driver: pick(&mut random, &DRIVERS),
            model: pick(&mut random, &MODELS),
            device_version: pick(&mut random, &DEVICE_VERSIONS),
        };
        Self {
            latitude: degrees(random.unit() * 180.0 - 90.0),
            longitude: degrees(random.unit() * 360.0 - 180.0),
            elevation: (random.unit() * 500.0).floor(),
            velocity: 0.0,
            heading: (random.unit() * 360.0).floor(),
            grade: 0.0,
            fuel_consumption: 25.0,
            fuel_state: 1.0,
            current_load: 0,
            status: 0,
            rest: 0,
            tags,
            random,
        }
    }

    /// Drives on for one tick.
    pub fn tick(&mut self) {
        self.latitude = self.walk(self.latitude, 0.005, (-90.0, 90.0), 1e5);
        self.longitude = self.walk(self.longitude, 0.005, (-180.0, 180.0), 1e5);
        self.elevation = self.walk(self.elevation, 10.0, (0.0, 5000.0), 1.0);
        self.velocity = self.walk(self.velocity, 10.0, (0.0, 100.0), 1.0);
        self.heading = self.walk(self.heading, 10.0, (0.0, 360.0), 1.0);
        self.grade = self.walk(self.grade, 5.0, (0.0, 100.0), 1.0);
        self.fuel_consumption = self.walk(self.fuel_consumption, 1.0, (0.0, 50.0), 10.0);
        if self.random.chance(1, 120) {
            self.fuel_state = self.walk(self.fuel_state, 0.1, (0.0, 1.0), 10.0);
        }
        if self.random.chance(994, 1000) {
            self.current_load = self.random.below(5000);
        }
        if self.random.chance(1, 6) {
            let step = self.random.below(3) as i64 - 1;
            self.status = (self.status + step).clamp(0, 5);
        }
        self.rest = match self.rest {
            0 if self.random.chance(1, REST_EVERY) => REST_TICKS,
            ticks => ticks.saturating_sub(1),
        };
        if self.rest > 0 {
            self.velocity = 0.0;
        }
    }

    /// Latitude, longitude, elevation, velocity, heading, grade, fuel consumption.
    pub fn readings(&self) -> [f64; 7] {
        [
            self.latitude,
            self.longitude,
            self.elevation,
            self.velocity,
            self.heading,
            self.grade,
            self.fuel_consumption,
        ]
    }

    /// Fuel state, current load, status.
    pub fn diagnostics(&self) -> [f64; 3] {
        [self.fuel_state, self.current_load as f64, self.status as f64]
    }

    /// A bounded random walk: a step of about `width`, then at most `per_unit` different values per unit. Sums of
    /// uniform numbers make the step, because logarithms differ between machines.
    fn walk(&mut self, value: f64, width: f64, (low, high): (f64, f64), per_unit: f64) -> f64 {
        let sum: f64 = (0..4).map(|_| self.random.unit()).sum();
        let stepped = value + (sum - 2.0) * 1.75 * width;
        (stepped.clamp(low, high) * per_unit).round() / per_unit
    }
}

/// Rounds to the five decimals of a position.
fn degrees(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

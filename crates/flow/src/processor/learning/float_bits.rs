//! Floats in saved states, by their bits: text would lose infinities, and the last digit in some readers.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A float that a saved state has exactly.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub(super) struct Float(pub f64);

impl Serialize for Float {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.to_bits().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        u64::deserialize(from).map(|bits| Self(f64::from_bits(bits)))
    }
}

/// Floats of a list, for `#[serde(with = "float_bits::list")]`.
pub(super) mod list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Float;

    pub(in super::super) fn serialize<S: Serializer>(all: &[f64], to: S) -> Result<S::Ok, S::Error> {
        all.iter().map(|x| Float(*x)).collect::<Vec<_>>().serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        Ok(Vec::<Float>::deserialize(from)?.into_iter().map(|x| x.0).collect())
    }
}

/// Lists of floats, for `#[serde(with = "float_bits::lists")]`.
pub(super) mod lists {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Float;

    pub(in super::super) fn serialize<S: Serializer>(all: &[Vec<f64>], to: S) -> Result<S::Ok, S::Error> {
        let bits = |of: &Vec<f64>| of.iter().map(|x| Float(*x)).collect::<Vec<_>>();
        all.iter().map(bits).collect::<Vec<_>>().serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Vec<f64>>, D::Error> {
        let all = Vec::<Vec<Float>>::deserialize(from)?;
        Ok(all.into_iter().map(|of| of.into_iter().map(|x| x.0).collect()).collect())
    }
}

/// A float, for `#[serde(with = "float_bits")]`.
pub(super) fn serialize<S: Serializer>(x: &f64, to: S) -> Result<S::Ok, S::Error> {
    Float(*x).serialize(to)
}

/// See [`serialize`].
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Float::deserialize(from).map(|x| x.0)
}

//! Versions of InfluxDB whose routes are served: guards and the API description ask for them, too.

/// Version of InfluxDB whose routes a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiVersion {
    V1,
    V2,
    V3,
}

impl ApiVersion {
    /// Returns the version that has a path.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        match path {
            "/write" | "/query" => Some(Self::V1),
            "/api/v2/write" => Some(Self::V2),
            "/api/v3/write_lp" => Some(Self::V3),
            _ => None,
        }
    }

    /// Returns the name of the schema of its errors in the API description.
    pub(crate) fn schema_name(self) -> &'static str {
        match self {
            Self::V1 => "WriteErrorV1",
            Self::V2 => "WriteErrorV2",
            Self::V3 => "WriteErrorV3",
        }
    }
}

//! File handles of the process, and the part of them that connections may take.
//!
//! A process that has no handle left can neither write its log nor take a checkpoint. So connections together take at most half of
//! them, and each of the two listeners, HTTP and MongoDB, half of that.

/// Listeners that share the handles for connections.
const LISTENERS: usize = 2;

/// Returns the maximum number of connections of one listener, at most `most`, such that half of the process's file handles remain for
/// data.
pub fn connections_max(most: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    within(most, files_max(&limits))
}

fn within(most: usize, files: Option<usize>) -> usize {
    files.map_or(most, |files| most.min(files / 2 / LISTENERS).max(1))
}

/// Parses the soft limit of open files from the text of `/proc/self/limits`; `None` if it is unlimited or missing.
fn files_max(limits: &str) -> Option<usize> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_left_for_data() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             62763                62763                processes\n\
                      Max open files            1024                 524288               files\n";
        assert_eq!(files_max(limits), Some(1024));
        assert_eq!(
            files_max("Max open files            unlimited            unlimited            files"),
            None
        );
        assert!(connections_max(usize::MAX) >= 1);
    }

    #[test]
    fn both_listeners_together_take_half() {
        assert_eq!(within(10_000, Some(400)), 100);
        assert_eq!(within(50, Some(400)), 50);
        assert_eq!(within(10_000, Some(1)), 1);
        assert_eq!(within(10_000, None), 10_000);
    }
}

//! File handles of the process, and the part of them that connections may take.
//!
//! A process that has no handle left can neither write its log nor take a checkpoint. So connections together take at most half of
//! them, and each listener an equal share of that half.

/// Returns the maximum number of connections of one of `listeners` listeners, at most `most`, such that half of the process's file
/// handles remain for data.
pub fn connections_max(most: usize, listeners: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    within(most, files_max(&limits), listeners)
}

fn within(most: usize, files: Option<usize>, listeners: usize) -> usize {
    files.map_or(most, |files| most.min(files / 2 / listeners.max(1)).max(1))
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
        assert!(connections_max(usize::MAX, 2) >= 1);
    }

    #[test]
    fn all_listeners_together_take_half() {
        assert_eq!(within(10_000, Some(400), 2), 100);
        assert_eq!(within(10_000, Some(400), 5), 40);
        assert_eq!(within(50, Some(400), 2), 50);
        assert_eq!(within(10_000, Some(1), 2), 1);
        assert_eq!(within(10_000, None, 2), 10_000);
    }
}

//! K-means over weighted points, without random numbers.

/// Returns at most `clusters` centroids. The first ones are the heaviest point and then, again and again, the point that is
/// farthest from all of them by weight, so equal points make equal centroids.
pub(super) fn k_means(points: &[(Vec<f64>, f64)], clusters: usize, iterations: usize) -> Vec<Vec<f64>> {
    k_means_from(vec![], points, clusters, iterations)
}

/// Returns at most `clusters` centroids that k-means reaches from these, which come first and in their order. Where there
/// are fewer than `clusters`, points that are far from all of them join as [`k_means`] chooses its first ones.
pub(super) fn k_means_from(
    start: Vec<Vec<f64>>,
    points: &[(Vec<f64>, f64)],
    clusters: usize,
    iterations: usize,
) -> Vec<Vec<f64>> {
    let mut centroids = first_centroids(start, points, clusters);
    for _ in 0..iterations {
        let mut sums =
            vec![(vec![0.0; points.first().map_or(0, |(point, _)| point.len())], 0.0); centroids.len()];
        for (point, weight) in points {
            let Some((at, _)) = nearest(&centroids, point) else { continue };
            let (sum, total) = &mut sums[at];
            sum.iter_mut().zip(point).for_each(|(sum, x)| *sum += x * weight);
            *total += weight;
        }
        let moved: Vec<Vec<f64>> = sums
            .into_iter()
            .zip(&centroids)
            .map(|((sum, total), old)| match total > 0.0 {
                true => sum.into_iter().map(|x| x / total).collect(),
                false => old.clone(),
            })
            .collect();
        if moved == centroids {
            break;
        }
        centroids = moved;
    }
    centroids
}

fn first_centroids(start: Vec<Vec<f64>>, points: &[(Vec<f64>, f64)], clusters: usize) -> Vec<Vec<f64>> {
    let mut centroids = start;
    while centroids.len() < clusters {
        let rank = |(point, weight): &(Vec<f64>, f64)| match nearest(&centroids, point) {
            Some((_, distance)) => distance * weight,
            None => *weight,
        };
        let mut best: Option<(f64, &Vec<f64>)> = None;
        for one in points {
            let rank = rank(one);
            if rank > best.map_or(0.0, |(best, _)| best) {
                best = Some((rank, &one.0));
            }
        }
        // fewer different points than clusters
        let Some((_, point)) = best else { break };
        centroids.push(point.clone());
    }
    centroids
}

/// Returns the nearest centroid of a point, by its index, with the square of the distance.
pub(super) fn nearest(centroids: &[Vec<f64>], point: &[f64]) -> Option<(usize, f64)> {
    let distance =
        |centroid: &Vec<f64>| centroid.iter().zip(point).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    let ranked = centroids.iter().enumerate().map(|(at, centroid)| (at, distance(centroid)));
    ranked.min_by(|(_, a), (_, b)| a.total_cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighted_points_make_centroids() {
        let points: Vec<_> =
            [(0.0, 1.0), (1.0, 3.0), (9.0, 1.0), (11.0, 1.0)].map(|(x, weight)| (vec![x], weight)).into();
        assert_eq!(k_means(&points, 2, 40), [vec![0.75], vec![10.0]]);
        assert_eq!(k_means(&points[..1], 2, 40), [vec![0.0]]);
        assert!(k_means(&[], 2, 40).is_empty());
    }

    #[test]
    fn given_centroids_stay_first_and_others_join() {
        let points: Vec<_> = [1.0, 3.0, 20.0, 22.0].map(|x| (vec![x], 1.0)).into();
        assert_eq!(k_means_from(vec![vec![30.0], vec![0.0]], &points, 2, 40), [vec![21.0], vec![2.0]]);
        assert_eq!(k_means_from(vec![vec![21.0]], &points, 2, 40), [vec![21.0], vec![2.0]]);
        // a centroid without a point stays where it is
        assert_eq!(k_means_from(vec![vec![-90.0], vec![2.0], vec![21.0]], &points, 3, 40)[0], [-90.0]);
    }
}

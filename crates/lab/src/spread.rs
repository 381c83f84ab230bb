//! A figure with its spread.

/// The smallest, the middle and the largest of several readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The smallest reading.
    pub min: f64,
    /// The middle reading; of an even number the mean of the middle two.
    pub median: f64,
    /// The largest reading.
    pub max: f64,
}

impl Spread {
    /// Spread of `readings`; `None` if there are none.
    #[must_use]
    pub fn of(readings: &[f64]) -> Option<Self> {
        let mut sorted = readings.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { min, median, max })
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(Spread::of(&[4.0, 1.0, 3.0, 2.0]), Some(Spread { min: 1.0, median: 2.5, max: 4.0 }));
        assert_eq!(Spread::of(&[7.0]), Some(Spread { min: 7.0, median: 7.0, max: 7.0 }));
        assert_eq!(Spread::of(&[]), None);
    }
}

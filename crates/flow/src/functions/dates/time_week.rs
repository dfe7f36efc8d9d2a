//! Weeks of the year; the rules differ by country.

use jiff::civil::{Date, Weekday};

/// Rule for numbering weeks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::functions) struct WeekRule {
    /// First day of a week.
    first: Weekday,
    /// Minimum number of days of the first week that lie in the year.
    least: i32,
}

/// Countries whose first week has at least four days in the year.
const FOUR_DAYS: &str = "AD AT AX BE BG CH CZ DE DK EE ES FI FJ FO FR GB GF GG GI GP GR HU IE IM IS IT JE LI LT LU MC \
                         MQ NL NO PL PT RE RU SE SJ SK SM VA";
/// Countries whose weeks begin on Sunday.
const SUNDAY: &str = "AG AS AU BD BR BS BT BW BZ CA CN CO DM DO ET GT GU HK HN ID IL IN JM JP KE KH KR LA MH MM MO MT \
                      MX MZ NI NP PA PE PH PK PR PT PY SA SG SV TH TT TW UM US VE VI WS YE ZA ZW";
/// Countries whose weeks begin on Saturday.
const SATURDAY: &str = "AE AF BH DJ DZ EG IQ IR JO KW LY OM QA SD SY";

impl WeekRule {
    /// Weeks begin on Sunday, and the first week contains January 1st.
    pub(in crate::functions) const ENGLISH: Self = Self { first: Weekday::Sunday, least: 1 };

    /// Returns the rule of a locale such as `de_DE`; without a country, the English rule. Errors: `locale` is
    /// not a locale.
    pub(in crate::functions) fn of(locale: &str) -> Result<Self, String> {
        let mut parts = locale.split(['_', '-']);
        let language = parts.next().unwrap_or("");
        let letters = |t: &str| t.chars().all(|c| c.is_ascii_alphabetic());
        if !(2..=3).contains(&language.len()) || !letters(language) {
            return Err(format!(
                "`{locale}` is not a locale: expected a language and a country, for example `en_US`"
            ));
        }
        let Some(country) = parts.next().filter(|c| !c.is_empty()).map(str::to_ascii_uppercase) else {
            return Ok(Self::ENGLISH);
        };
        let among = |countries: &str| countries.split_whitespace().any(|c| c == country);
        let first = if among(SUNDAY) {
            Weekday::Sunday
        } else if among(SATURDAY) {
            Weekday::Saturday
        } else if country == "MV" {
            Weekday::Friday
        } else {
            Weekday::Monday
        };
        Ok(Self { first, least: if among(FOUR_DAYS) { 4 } else { 1 } })
    }

    /// Returns the year to which the week of a date belongs, and the week number.
    pub(in crate::functions) fn week(self, date: Date) -> (i16, i32) {
        let year = date.year();
        let days = i32::from(date.day_of_year()) - 1;
        let start = self.first_week(year);
        if days < start {
            let before = days + year_days(year - 1);
            return (year - 1, (before - self.first_week(year - 1)) / 7 + 1);
        }
        if year < Date::MAX.year() && days - year_days(year) >= self.first_week(year + 1) {
            return (year + 1, 1);
        }
        (year, (days - start) / 7 + 1)
    }

    /// Returns the start of the first week of a year, in days from January 1st.
    fn first_week(self, year: i16) -> i32 {
        let first = Date::new(year, 1, 1).map_or(Weekday::Monday, Date::weekday);
        let into_week = i32::from(self.first.until(first));
        if 7 - into_week >= self.least { -into_week } else { 7 - into_week }
    }
}

fn year_days(year: i16) -> i32 {
    Date::new(year, 1, 1).map_or(365, |d| i32::from(d.days_in_year()))
}

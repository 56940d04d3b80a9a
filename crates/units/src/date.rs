//! Dates of the Gregorian calendar.

/// Seconds since 1970 as a date and time of UTC, such as `2026-11-21 09:30:00`.
///
/// Counted in eras of 400 years that begin in March, so that the leap day is the last of its year.
#[must_use]
pub fn utc(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400) + 719_468, unix_s.rem_euclid(86_400));
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + era * 400, if month < 10 { month + 3 } else { month - 9 });
    let year = if month <= 2 { year + 1 } else { year };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

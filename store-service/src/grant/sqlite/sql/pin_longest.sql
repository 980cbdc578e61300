-- pin_longest: the longest leeway, and the longest lifetime with its skew, that are pinned for an
-- issuer. Outcomes: one row; zeros where nothing is.
--
-- ?1 issuer
SELECT coalesce(max(p.leeway_ms), 0) AS leeway_ms, coalesce(max(p.lifetime_ms_max + p.iat_skew_ms), 0) AS lifetime_ms
FROM grant_policies AS p
WHERE p.issuer = ?1

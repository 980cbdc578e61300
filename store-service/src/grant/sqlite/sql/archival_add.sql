-- archival_add: what a batch archived of one issuer, appended. In the write lock, with the batch.
--
-- ?1 now ?2 issuer ?3 archived ?4 used among them ?5 last expiry
INSERT INTO grant_archivals (at, issuer, archived, used, last_expired) VALUES (?1, ?2, ?3, ?4, ?5)

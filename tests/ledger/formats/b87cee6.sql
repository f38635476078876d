BEGIN TRANSACTION;
CREATE TABLE entries (
	seq INTEGER NOT NULL, 
	at TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	analyst TEXT NOT NULL, 
	body TEXT NOT NULL, 
	previous TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "entries" VALUES(1,'2026-11-23T19:22:49.334942+00:00','ledger','','','{"format": 1, "id": "b87c191274d54847afd681d65ba6a04c", "keyed": true, "test": false}','0000000000000000000000000000000000000000000000000000000000000000','d8953f6206546a80e5f846583e792a426dadc87984a1344a68a8505a5ec9b06e');
INSERT INTO "entries" VALUES(2,'2026-11-23T19:22:49.342926+00:00','dataset','articles','','{"sensitivity": {"l0": 3, "linf": 1, "neighbours": "add_remove"}, "terms": {"delta": 1e-05, "registered": "4*DP(0.2) + 40*BR(0.1) + delta(1e-06)"}, "unit": "member", "version": "1"}','d8953f6206546a80e5f846583e792a426dadc87984a1344a68a8505a5ec9b06e','70310da7a7b24f4c6520502e8aa813f81d4ef55b896f935c26217fa0b6460742');
INSERT INTO "entries" VALUES(3,'2026-11-23T19:22:49.345611+00:00','dataset','bücher','','{"sensitivity": {"l0": null, "linf": 1, "neighbours": "add_remove"}, "terms": {"budget": [1.5, 1e-06]}, "unit": "user", "version": "1"}','70310da7a7b24f4c6520502e8aa813f81d4ef55b896f935c26217fa0b6460742','59c7562d9e5d2157c1422b4843952db315dd908a3ceb3aadaa0f4f18b6703998');
INSERT INTO "entries" VALUES(4,'2026-11-23T19:22:49.380467+00:00','charge','articles','ann','{"charge": "5*BR(0.1) + delta(1e-08) [adaptive]", "mechanism": {"text": "KnownGumbel(k=5, epsilon=0.1)"}, "query": "q1", "seeded": false}','59c7562d9e5d2157c1422b4843952db315dd908a3ceb3aadaa0f4f18b6703998','2bb50421694d8698da8bfcc5d411dcb65040d79e3ab36b8bbdd9760eea2ae1b4');
INSERT INTO "entries" VALUES(5,'2026-11-23T19:22:49.387735+00:00','release','articles','ann','{"answer": {"rows": [[1, "ä", 7]]}, "charge": 4, "used": "3*BR(0.1) + delta(1e-08) [adaptive]"}','2bb50421694d8698da8bfcc5d411dcb65040d79e3ab36b8bbdd9760eea2ae1b4','2655b449f476cbedc755c0da0fa700c50f64c6fe9ea7d735904f798de2ec3846');
INSERT INTO "entries" VALUES(6,'2026-11-23T19:22:49.389289+00:00','limit','articles','bob','{"terms": {"delta": 1e-05, "registered": "6*BR(0.1) + delta(1e-07)"}}','2655b449f476cbedc755c0da0fa700c50f64c6fe9ea7d735904f798de2ec3846','5db052354200583b2aa51730f5b6e82ddf594985f8fc64788ada72e4fb1c80d2');
INSERT INTO "entries" VALUES(7,'2026-11-23T19:22:49.399682+00:00','charge','articles','bob','{"charge": "BR(0.1) + delta(1e-08)", "mechanism": {}, "query": "q2", "seeded": false}','5db052354200583b2aa51730f5b6e82ddf594985f8fc64788ada72e4fb1c80d2','20bd0793942afb4e8ad55e2e5000323e6766e5a386e7514c70c18c7825883e51');
INSERT INTO "entries" VALUES(8,'2026-11-23T19:22:49.407528+00:00','release','articles','bob','{"answer": {"rows": []}, "charge": 7, "used": "BR(0.1) + delta(1e-08)"}','20bd0793942afb4e8ad55e2e5000323e6766e5a386e7514c70c18c7825883e51','141f57dc28540ad52c7093ae182cb9aa8a03e65e3ecd597d67cf5386b784112b');
INSERT INTO "entries" VALUES(9,'2026-11-23T19:22:49.411690+00:00','charge','articles','ann','{"charge": "BR(0.1) + delta(1e-08)", "mechanism": {}, "query": "", "seeded": false}','141f57dc28540ad52c7093ae182cb9aa8a03e65e3ecd597d67cf5386b784112b','7e4c85c0e2d6153280d0e6dd1a9eace6e694c0ddc30c7988c2c16b264e266ab5');
INSERT INTO "entries" VALUES(10,'2026-11-23T19:22:49.418739+00:00','charge','bücher','ann','{"charge": "2*BR(0.1) + 2*ZCDP(0.01)", "mechanism": {}, "query": "", "seeded": false}','7e4c85c0e2d6153280d0e6dd1a9eace6e694c0ddc30c7988c2c16b264e266ab5','f2f345932ea8fc7cc903573e28d75e3c8c0a47ace90f4c3dff712058d2eb422d');
INSERT INTO "entries" VALUES(11,'2026-11-23T19:22:49.435195+00:00','release','bücher','ann','{"answer": null, "charge": 10, "used": "2*BR(0.1) + ZCDP(0.01)"}','f2f345932ea8fc7cc903573e28d75e3c8c0a47ace90f4c3dff712058d2eb422d','e5917b7d7a25a1ecc29896b8038b276854e61fe7e76c0c50b2d103403a8c865a');
INSERT INTO "entries" VALUES(12,'2026-11-23T19:22:49.441762+00:00','renewal','bücher','','{"reason": "new year", "terms": {"budget": [1.0, 1e-06]}}','e5917b7d7a25a1ecc29896b8038b276854e61fe7e76c0c50b2d103403a8c865a','ba6d831a192f173086fbb46c48cb9b036ffc84aa2832b8e395dda0e33a4c526b');
INSERT INTO "entries" VALUES(13,'2026-11-23T19:22:49.455555+00:00','charge','bücher','bob','{"charge": "3*BR(0.1)", "mechanism": {}, "query": "", "seeded": false}','ba6d831a192f173086fbb46c48cb9b036ffc84aa2832b8e395dda0e33a4c526b','ae38006ee3006529ca8a667ae9622743fd9212230c94281773f912b77e83a01b');
INSERT INTO "entries" VALUES(14,'2026-11-23T19:22:49.466871+00:00','version','articles','','{"version": "2"}','ae38006ee3006529ca8a667ae9622743fd9212230c94281773f912b77e83a01b','0a2cb41c08f79d5336ccf5b70f6238a1378fe198f52e5483923860a8ae725d91');
CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
COMMIT;

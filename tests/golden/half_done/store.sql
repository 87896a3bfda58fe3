BEGIN TRANSACTION;
CREATE TABLE kafka_replication_alerts (
	replication VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	since BIGINT NOT NULL, 
	last_seen BIGINT NOT NULL, 
	announced_at BIGINT, 
	document TEXT NOT NULL, 
	PRIMARY KEY (replication, kind, subject)
);
CREATE TABLE kafka_replication_boundaries (
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	source_topic_id VARCHAR NOT NULL, 
	time BIGINT NOT NULL, 
	next_offset BIGINT NOT NULL, 
	PRIMARY KEY (replication, source_topic, source_partition, source_topic_id, time)
);
CREATE TABLE kafka_replication_failed_records (
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	target_topic VARCHAR NOT NULL, 
	generation INTEGER NOT NULL, 
	source_offset BIGINT NOT NULL, 
	kind VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	size BIGINT NOT NULL, 
	key_digest VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	reason TEXT NOT NULL, 
	error VARCHAR NOT NULL, 
	place_topic VARCHAR, 
	place_partition INTEGER, 
	place_offset BIGINT, 
	history TEXT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	PRIMARY KEY (replication, source_topic, source_partition, target_topic, generation, source_offset)
);
INSERT INTO "kafka_replication_failed_records" VALUES('{name}','{topic}',2,'{topic}',1,25,'too_large','quarantined',4004,'722df9b4056185b8df5f7fff50e47471','48e0d805f3e0864fbfa0e29e92595e98','its 4004 bytes are too many for the target topic {topic} (max.message.bytes=3000)','MSG_SIZE_TOO_LARGE','kafka-replication.quarantine.{name}',6,0,'[{"time":"2026-11-25T15:25:27.065Z","state":"quarantined","run_id":"cli-host-14922-0d13b61d","by":"","reason":""}]',1795620329224);
CREATE TABLE kafka_replication_leases (
	replication VARCHAR NOT NULL, 
	token BIGINT NOT NULL, 
	PRIMARY KEY (replication)
);
INSERT INTO "kafka_replication_leases" VALUES('{name}',7);
CREATE TABLE kafka_replication_past_alerts (
	replication VARCHAR NOT NULL, 
	ended_at BIGINT NOT NULL, 
	kind VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	since BIGINT NOT NULL, 
	what TEXT NOT NULL, 
	remedy TEXT NOT NULL, 
	PRIMARY KEY (replication, ended_at, kind, subject)
);
CREATE TABLE kafka_replication_range_outcomes (
	run_id VARCHAR NOT NULL, 
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	target_topic VARCHAR NOT NULL, 
	from_offset BIGINT NOT NULL, 
	until_offset BIGINT NOT NULL, 
	copied BIGINT NOT NULL, 
	not_visible BIGINT NOT NULL, 
	digest_ok BOOLEAN, 
	level VARCHAR NOT NULL, 
	watermark BIGINT, 
	error TEXT, 
	remedy TEXT, 
	seconds FLOAT NOT NULL, 
	bytes BIGINT NOT NULL, 
	recorded_at BIGINT NOT NULL, 
	counted INTEGER, 
	PRIMARY KEY (run_id, replication, source_topic, source_partition, target_topic, from_offset, until_offset), 
	FOREIGN KEY(run_id) REFERENCES kafka_replication_runs (run_id)
);
INSERT INTO "kafka_replication_range_outcomes" VALUES('cli-host-14922-0d13b61d','{name}','{topic}',0,'{topic}',10,60,50,0,1,'digest',60,NULL,NULL,0.293,2300,1795620329108,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('cli-host-14922-0d13b61d','{name}','{topic}',1,'{topic}',10,60,50,0,1,'digest',60,NULL,NULL,0.32,2300,1795620329108,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('cli-host-14922-0d13b61d','{name}','{topic}',2,'{topic}',10,60,49,0,1,'digest',60,NULL,NULL,0.565,2254,1795620329108,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('cli-host-14922-0d13b61d','{name}','{topic}',3,'{topic}',10,60,50,0,1,'digest',60,NULL,NULL,0.443,2300,1795620329108,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('cli-host-14922-ce50e179','{name}','{topic}',0,'{topic}',0,10,10,0,1,'digest',60,NULL,NULL,0.207,450,1795620331465,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('cli-host-14922-2e4936b0','{name}','{topic}',1,'{topic}',3,7,4,0,1,'digest',60,NULL,NULL,0.304,180,1795620333497,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('cli-host-14922-dc78bbd6','{name}','{topic}',3,'{topic}',60,90,0,0,NULL,'digest',60,'{topic}-3: offsets [60, 75) can no longer be read, the log now starts at 75; nothing after them is copied','restore them at the source, or approve the gap: kafka-replication approve-gap {name}.yaml --topic {topic} --partition 3 --from 60 --until 75 --target-topic {topic} --reason "..."',0.0,0,1795620334314,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('died-before-verified','{name}','{topic}',0,'{topic}',60,100,0,0,NULL,'',NULL,NULL,NULL,0.244,1840,1795620342581,NULL);
INSERT INTO "kafka_replication_range_outcomes" VALUES('died-before-verified','{name}','{topic}',1,'{topic}',60,100,0,0,NULL,'',NULL,NULL,NULL,0.21,1840,1795620343013,NULL);
CREATE TABLE kafka_replication_runs (
	sequence INTEGER NOT NULL, 
	run_id VARCHAR NOT NULL, 
	replication VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	"plan" TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	finished_at BIGINT, progress TEXT, expected_until BIGINT, 
	PRIMARY KEY (sequence), 
	UNIQUE (run_id)
);
INSERT INTO "kafka_replication_runs" VALUES(1,'cli-host-14922-0d13b61d','{name}','live','done','{"format": 1, "replication": "{name}", "partitions": [{"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 0}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 10, "source_end": 60, "watermark": null, "copy": [10, 60], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 1}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 10, "source_end": 60, "watermark": null, "copy": [10, 60], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 2}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 10, "source_end": 60, "watermark": null, "copy": [10, 60], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 3}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 10, "source_end": 60, "watermark": null, "copy": [10, 60], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}], "receipts_from": {"8": 0, "6": 12, "9": 0}}',1795620324003,1795620329145,'{"ranges": 4, "ranges_done": 4, "offsets": 200, "offsets_done": 200, "slowest": null, "slowest_percent": null, "records": 199, "bytes": 9154, "seconds": 4.549, "bytes_per_second": 2012.486977364011, "seconds_left": 0.0, "throttled": 0.0, "percent": 100, "at": "2026-11-25T15:25:28.714Z", "moved": "2026-11-25T15:25:28.714Z"}',NULL);
INSERT INTO "kafka_replication_runs" VALUES(2,'cli-host-14922-ce50e179','{name}','backfill','done','{"format": 1, "replication": "{name}", "partitions": [{"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 0}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 60, "watermark": 60, "copy": [0, 10], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}], "receipts_from": {"8": 6}}',1795620330248,1795620331468,'{"ranges": 1, "ranges_done": 1, "offsets": 10, "offsets_done": 10, "slowest": null, "slowest_percent": null, "records": 10, "bytes": 450, "seconds": 0.925, "bytes_per_second": 486.43455894020747, "seconds_left": 0.0, "throttled": 0.0, "percent": 100, "at": "2026-11-25T15:25:31.221Z", "moved": "2026-11-25T15:25:31.221Z"}',NULL);
INSERT INTO "kafka_replication_runs" VALUES(3,'cli-host-14922-2e4936b0','{name}','backfill','done','{"format": 1, "replication": "{name}", "partitions": [{"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 1}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 60, "watermark": 60, "copy": [3, 7], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}], "receipts_from": {"6": 24}}',1795620332467,1795620333533,'{"ranges": 1, "ranges_done": 1, "offsets": 4, "offsets_done": 4, "slowest": null, "slowest_percent": null, "records": 4, "bytes": 180, "seconds": 0.787, "bytes_per_second": 228.80209769344813, "seconds_left": 0.0, "throttled": 0.0, "percent": 100, "at": "2026-11-25T15:25:33.335Z", "moved": "2026-11-25T15:25:33.335Z"}',NULL);
INSERT INTO "kafka_replication_runs" VALUES(4,'cli-host-14922-dc78bbd6','{name}','live','failed','{"format": 1, "replication": "{name}", "partitions": [{"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 0}, "target_topic": "{topic}"}, "state": "in sync", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 60, "watermark": 60, "copy": null, "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 1}, "target_topic": "{topic}"}, "state": "in sync", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 60, "watermark": 60, "copy": null, "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 2}, "target_topic": "{topic}"}, "state": "in sync", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 60, "watermark": 60, "copy": null, "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 3}, "target_topic": "{topic}"}, "state": "retention overran", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 90, "watermark": 60, "copy": null, "verify": [], "leader_epoch": 0, "what": "{topic}-3: offsets [60, 75) can no longer be read, the log now starts at 75; nothing after them is copied", "remedy": "restore them at the source, or approve the gap: kafka-replication approve-gap {name}.yaml --topic {topic} --partition 3 --from 60 --until 75 --target-topic {topic} --reason \"...\""}], "receipts_from": {"9": 6}}',1795620334239,1795620334317,NULL,NULL);
INSERT INTO "kafka_replication_runs" VALUES(5,'died-before-verified','{name}','live','died','{"format": 1, "replication": "{name}", "partitions": [{"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 0}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 100, "watermark": 60, "copy": [60, 100], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 1}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 100, "watermark": 60, "copy": [60, 100], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 2}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 100, "watermark": 60, "copy": [60, 100], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 3}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 75, "source_end": 90, "watermark": 75, "copy": [75, 90], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}], "receipts_from": {"8": 8, "6": 26, "9": 6}}',1795620341697,1795620349021,NULL,NULL);
INSERT INTO "kafka_replication_runs" VALUES(6,'died-before-read-back','{name}','live','died','{"format": 1, "replication": "{name}", "partitions": [{"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 0}, "target_topic": "{topic}"}, "state": "in sync", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 100, "source_end": 100, "watermark": 100, "copy": null, "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 1}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 100, "source_end": 160, "watermark": 60, "copy": [100, 160], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 2}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 100, "watermark": 60, "copy": [60, 100], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 3}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 75, "source_end": 90, "watermark": 75, "copy": [75, 90], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}], "receipts_from": {"6": 30, "9": 6}}',1795620350055,1795620356118,NULL,NULL);
INSERT INTO "kafka_replication_runs" VALUES(7,'old-run','{name}','live','planned','{"format": 1, "replication": "{name}", "partitions": [{"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 0}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 100, "source_end": 150, "watermark": 100, "copy": [100, 150], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 1}, "target_topic": "{topic}"}, "state": "pending verification", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 160, "source_end": 160, "watermark": 60, "copy": null, "verify": [[100, 160]], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 2}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 60, "source_end": 160, "watermark": 60, "copy": [60, 160], "verify": [], "leader_epoch": 0, "what": "", "remedy": ""}, {"key": {"replication": "{name}", "source": {"topic": "{topic}", "partition": 3}, "target_topic": "{topic}"}, "state": "behind", "ids": {"source_cluster": "{source_cluster}", "source_topic": "{source_topic_id}", "target_topic": "{target_topic_id}"}, "generation": 1, "start": 10, "position": 75, "source_end": 110, "watermark": 75, "copy": [75, 110], "verify": [], "leader_epoch": null, "what": "", "remedy": ""}], "receipts_from": {"8": 12, "6": 30, "9": 6}}',1795620356871,NULL,NULL,NULL);
CREATE TABLE kafka_replication_samples (
	replication VARCHAR NOT NULL, 
	span BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	run_id VARCHAR NOT NULL, 
	lag_records BIGINT, 
	lag_seconds FLOAT, 
	records BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	seconds FLOAT NOT NULL, 
	PRIMARY KEY (replication, span, at, run_id)
);
CREATE TABLE kafka_replication_schema (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "kafka_replication_schema" VALUES(1);
CREATE TABLE kafka_replication_standings (
	replication VARCHAR NOT NULL, 
	facts TEXT NOT NULL, 
	work TEXT, 
	measured_at BIGINT, 
	partition_count INTEGER NOT NULL, 
	lag_records BIGINT, 
	lag_seconds FLOAT, 
	partitions TEXT, 
	PRIMARY KEY (replication)
);
CREATE TABLE kafka_replication_target_leases (
	replication VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	holder VARCHAR, 
	waiting BOOLEAN NOT NULL, 
	topics TEXT NOT NULL, 
	process TEXT, 
	acquired_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	token BIGINT NOT NULL, 
	PRIMARY KEY (replication, owner)
);
INSERT INTO "kafka_replication_target_leases" VALUES('{name}','old-run','run ae834e46',0,'{"only": ["{topic}"]}','{"host":"host","pid":20354,"started":51343.38,"pid_space":"00000000-0000-0000-0000-000000000000 pid:[4026531836] time:[4026531834]"}',1795620356118,1795620360189,7);
CREATE TABLE kafka_replication_totals (
	replication VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	outcome VARCHAR NOT NULL, 
	value FLOAT NOT NULL, 
	PRIMARY KEY (replication, name, kind, outcome)
);
CREATE TABLE kafka_replication_watermarks (
	replication VARCHAR NOT NULL, 
	source_topic VARCHAR NOT NULL, 
	source_partition INTEGER NOT NULL, 
	target_topic VARCHAR NOT NULL, 
	generation INTEGER NOT NULL, 
	source_topic_id VARCHAR NOT NULL, 
	target_topic_id VARCHAR NOT NULL, 
	next_offset BIGINT NOT NULL, 
	version BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	run_id VARCHAR NOT NULL, 
	PRIMARY KEY (replication, source_topic, source_partition, target_topic)
);
INSERT INTO "kafka_replication_watermarks" VALUES('{name}','{topic}',0,'{topic}',1,'{source_topic_id}','{target_topic_id}',100,2,1795620342725,'died-before-verified');
INSERT INTO "kafka_replication_watermarks" VALUES('{name}','{topic}',1,'{topic}',1,'{source_topic_id}','{target_topic_id}',60,1,1795620326705,'cli-host-14922-0d13b61d');
INSERT INTO "kafka_replication_watermarks" VALUES('{name}','{topic}',2,'{topic}',1,'{source_topic_id}','{target_topic_id}',60,1,1795620327793,'cli-host-14922-0d13b61d');
INSERT INTO "kafka_replication_watermarks" VALUES('{name}','{topic}',3,'{topic}',1,'{source_topic_id}','{target_topic_id}',75,2,1795620334955,'approving');
CREATE INDEX kafka_replication_runs_latest ON kafka_replication_runs (replication, sequence);
CREATE INDEX kafka_replication_runs_age ON kafka_replication_runs (replication, created_at);
CREATE INDEX kafka_replication_runs_open ON kafka_replication_runs (replication, state);
CREATE INDEX kafka_replication_range_outcomes_partition ON kafka_replication_range_outcomes (replication, source_topic, source_partition, target_topic, recorded_at);
CREATE INDEX kafka_replication_failed_records_state ON kafka_replication_failed_records (replication, state);
COMMIT;

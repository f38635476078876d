-- Made-up events, one row a click: who (member) read what (article). Replace it by your own model or source.
select
    'm' || cast(range % 2000 as varchar) as member,
    'article ' || cast(cast(floor(40 * power(hash(range) / 18446744073709551616.0, 2)) as integer) as varchar) as article
from range(20000)

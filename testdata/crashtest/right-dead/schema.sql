-- What is no number is refused for good, and is a dead letter each time.
create schema shop;
create table shop.accounts (account text primary key, cents bigint not null);
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
begin
	if jsonb_typeof(p->'cents') <> 'number' then
		raise 'no amount: %', p->>'cents' using errcode = 'PERMA';
	end if;
	insert into shop.accounts values (p->>'account', (p->>'cents')::bigint)
	on conflict (account) do update set cents = accounts.cents + excluded.cents;
end $$;

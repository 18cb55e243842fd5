-- Each tenth payment wins, by a sequence: a rollback does not give its numbers back, and others win at the next try.
create schema shop;
create table shop.accounts (account text primary key, cents bigint not null);
create sequence shop.tickets;
create table shop.winners (payment text primary key);
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
begin
	insert into shop.accounts values (p->>'account', (p->>'cents')::bigint)
	on conflict (account) do update set cents = accounts.cents + excluded.cents;
	if nextval('shop.tickets') % 10 = 0 then
		insert into shop.winners values (m.raw_id);
	end if;
end $$;

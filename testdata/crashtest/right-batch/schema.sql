-- A whole batch in two statements.
create schema shop;
create table shop.accounts (account text primary key, cents bigint not null);
create table shop.journal (payment text not null, cents bigint not null);
create function shop.book(batch firstseen.message[]) returns void language plpgsql as $$
begin
	insert into shop.journal select m.raw_id, (firstseen.body(m)->>'cents')::bigint from unnest(batch) m;
	insert into shop.accounts
	select firstseen.body(m)->>'account', sum((firstseen.body(m)->>'cents')::bigint) from unnest(batch) m group by 1 order by 1
	on conflict (account) do update set cents = accounts.cents + excluded.cents;
end $$;
